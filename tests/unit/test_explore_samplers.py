"""The samplers explorer: what each control changes, shown by torch's own sampler."""

from __future__ import annotations

import math

import pytest
from torch.utils.data import DataLoader, DistributedSampler

from ddp_helpers import explore
from ddp_helpers.explore import Explorer
from ddp_helpers.explore.samplers import _read


@pytest.fixture
def explorer() -> Explorer:
    return explore.samplers(size=10, ranks=4, batch_size=2, shuffle=False)


def test_it_begins_with_a_picture(explorer: Explorer) -> None:
    assert bytes(explorer._image.value).startswith(b"\x89PNG")
    assert "DistributedSampler(dataset, shuffle=False, drop_last=False)" in explorer.text
    assert "steps an epoch: 2 · samples per step, all ranks together: 8 · again: 2 · not read: 0" in explorer.text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"size": 12}, "again: 0 · not read: 0"),
        ({"ranks": 3}, "steps an epoch: 2 · samples per step, all ranks together: 6 · again: 2"),
        ({"ranks": 1}, "steps an epoch: 5 · samples per step, all ranks together: 2 · again: 0"),
        ({"batch_size": 1}, "steps an epoch: 3 · samples per step, all ranks together: 4 · again: 2"),
        ({"drop_last": True}, "steps an epoch: 1 · samples per step, all ranks together: 8 · again: 0 · not read: 2"),
        ({"size": 3, "ranks": 7}, "steps an epoch: 1 · samples per step, all ranks together: 7 · again: 4"),
        (
            {"size": 3, "ranks": 7, "drop_last": True},
            "steps an epoch: 0 · samples per step, all ranks together: 0 · again: 0",
        ),
        ({"shuffle": True}, "epoch 1 reads other batches than epoch 0"),
        ({"shuffle": True, "set_epoch": False}, "epoch 1 reads the same as epoch 0"),
        ({"set_epoch": False}, "# set_epoch is not called"),
        ({"epoch": 4}, "epoch 5 reads the same as epoch 4"),
    ],
)
def test_each_control_changes_picture_or_numbers(explorer: Explorer, change: dict[str, int], expected: str) -> None:
    before = explorer._image.value, explorer.text
    explorer.set(**change)
    assert expected in explorer.text
    assert (explorer._image.value, explorer.text) != before


def test_it_counts_as_a_loader_counts(explorer: Explorer) -> None:
    explorer.set(size=31, ranks=5, batch_size=3)
    loader = DataLoader(range(31), batch_size=3, sampler=DistributedSampler(range(31), 5, 0))
    assert f"steps an epoch: {len(loader)}" in explorer.text and len(loader) == math.ceil(math.ceil(31 / 5) / 3)


def test_the_epoch_is_told_only_where_set_epoch_is_on() -> None:
    told, forgotten = (_read(10, 2, 3, True, False, set_epoch) for set_epoch in (True, False))
    sampler = DistributedSampler(range(10), 2, 0)
    assert forgotten[0] == [list(sampler)] * 2
    sampler.set_epoch(4)
    assert told[0][1] == list(sampler)
