"""The explorer of batch sizes: what each control changes, and what stays equal."""

from __future__ import annotations

import pytest

from ddp_helpers import explore
from ddp_helpers.explore import Explorer
from ddp_helpers.explore.batch import numbers
from ddp_helpers.pictures.batch_arithmetic import KEEP


@pytest.fixture
def explorer() -> Explorer:
    return explore.batch(samples=64, ranks=2, batch=8, lr=0.1)


def row(explorer: Explorer, name: str) -> list[str]:
    """The numbers of one line of the table: one process, the ranks."""
    return next(line for line in explorer.text.splitlines() if line.startswith(name)).removeprefix(name).split()


def test_with_the_batch_of_each_rank_kept_an_epoch_has_fewer_steps(explorer: Explorer) -> None:
    assert row(explorer, "steps an epoch") == ["8", "4"]
    assert row(explorer, "global batch") == ["8", "16"]
    assert row(explorer, "samples an epoch") == ["64", "64"]
    assert row(explorer, "lr by rule of thumb") == ["0.1", "0.2"]
    assert "Compare at equal steps" in explorer.text
    assert max(map(len, explorer.text.splitlines())) <= 85


def test_the_learning_rate_is_in_the_picture_too(explorer: Explorer) -> None:
    before = explorer._image.value
    explorer.set(lr=0.01)
    assert explorer._image.value != before


def test_with_the_global_batch_kept_nothing_else_changes(explorer: Explorer) -> None:
    explorer.set(keep=KEEP[1])
    assert row(explorer, "batch on each rank") == ["8", "4"]
    assert row(explorer, "steps an epoch") == ["8", "8"]
    assert row(explorer, "lr by rule of thumb") == ["0.1", "0.1"]
    assert "the training of one process" in explorer.text


def test_every_control_changes_text_or_picture(explorer: Explorer) -> None:
    for name, value in {"samples": 96, "ranks": 4, "batch": 16, "lr": 0.01, "keep": KEEP[1]}.items():
        before = explorer._image.value, explorer.text
        explorer.set(**{name: value})
        assert (explorer._image.value, explorer.text) != before, name


def test_samples_that_do_not_divide_are_dealt_twice(explorer: Explorer) -> None:
    explorer.set(samples=65)
    assert row(explorer, "samples an epoch") == ["65", "66"]


def test_a_global_batch_smaller_than_the_world_is_said_in_place_of_the_picture(explorer: Explorer) -> None:
    explorer.set(ranks=8, keep=KEEP[1], batch=4)
    assert explorer.text == "A global batch of 4 has not one sample for each of 8 ranks."
    assert explorer._image.layout.display == "none"


def test_a_global_batch_that_does_not_divide_is_said() -> None:
    assert "13 does not divide by 2" in numbers(64, 2, 13, 0.1, KEEP[1])


def test_one_rank_is_one_process() -> None:
    assert "lr stays" in numbers(64, 1, 8, 0.1, KEEP[0])
