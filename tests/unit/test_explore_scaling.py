"""The explorer of scaling: what each control changes, and what it says of the link."""

from __future__ import annotations

import math
import re

import pytest

from ddp_helpers import explore, scaling
from ddp_helpers.explore import Explorer
from ddp_helpers.explore.scaling import KINDS, model_of


@pytest.fixture
def explorer() -> Explorer:
    return explore.scaling(parameters=25e6, sample_ms=3, batch=32, latency_us=20, gigabytes=10, overlap=0.5)


def test_the_controls_come_to_the_model_in_its_own_units() -> None:
    work, link = model_of(parameters=25e6, sample_ms=3, latency_us=20, gigabytes=10, overlap=0.5)
    assert work.size == 1e8 and work.compute(32) == pytest.approx(0.096) and work.overlap == 0.5
    assert (link.latency, link.bandwidth) == pytest.approx((2e-5, 1e10))


def test_the_table_holds_the_model_s_numbers(explorer: Explorer) -> None:
    line = next(line for line in explorer.text.splitlines() if line.split()[:1] == ["1024"])
    work, link = model_of(**{name: value for name, value in explorer.values.items() if name not in ("kind", "batch")})
    assert f"{scaling.communication(link, 1024, work.size) * 1e3:.0f} ms" in line
    assert line.endswith(f"{scaling.efficiency(work, link, 1024, 32):.0%}")


def test_strong_scaling_is_shown_up_to_one_sample_a_rank(explorer: Explorer) -> None:
    explorer.set(kind=KINDS[1], batch=20)
    assert [line.split()[0] for line in explorer.text.splitlines()[1:4]] == ["2", "8", "20"]


def test_the_values_lie_on_the_sliders_grid_so_that_a_browser_leaves_them_as_they_are() -> None:
    given = {"parameters": 25.6e6, "sample_ms": 2.73, "latency_us": 20.0, "gigabytes": 1.25}
    shown = explore.scaling(batch=128, **given)
    for name, value in given.items():
        control = shown.controls[name]
        steps = (math.log10(control.value) - control.min) / control.step
        assert steps == pytest.approx(round(steps), abs=1e-6) and control.value == pytest.approx(value, rel=3e-3)
    assert "102 MB of gradients" in shown.text and "349 ms" in shown.text  # as the lesson counts them


def test_every_control_changes_text_or_picture(explorer: Explorer) -> None:
    new = {"parameters": 1e8, "sample_ms": 5, "batch": 64, "latency_us": 50, "gigabytes": 1, "overlap": 0.0}
    for name, value in {**new, "kind": KINDS[1]}.items():
        before = explorer._image.value, explorer.text
        explorer.set(**{name: value})
        assert (explorer._image.value, explorer.text) != before, name


@pytest.mark.parametrize(
    ("controls", "said"),
    [
        ({}, "stays below compute on up to 1024 ranks"),
        ({"gigabytes": 0.1}, "because of the bytes: 100 MB of gradients"),
        ({"latency_us": 1000}, "because of the latency"),
        (
            {"kind": KINDS[1], "batch": 4, "sample_ms": 50},
            "on up to 4 ranks, when each has one sample",
        ),
        ({"kind": KINDS[1]}, "what a rank computes shrinks, the 100 MB do not"),
    ],
)
def test_a_word_says_what_is_to_blame(explorer: Explorer, controls: dict[str, float], said: str) -> None:
    explorer.set(**controls)
    assert said in explorer.text


def test_there_is_no_fixed_number_of_ranks(explorer: Explorer) -> None:
    found = set()
    for latency in (50, 500, 5000):
        for sample in (0.5, 5, 50):
            explorer.set(latency_us=latency, sample_ms=sample)
            found.add(re.findall(r"From (\d+) ranks|up to (1024) ranks", explorer.text)[0])
    assert len(found) >= 6
