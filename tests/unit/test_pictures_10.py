"""Pictures of lesson 10: the time of each step, speed-up curves, the parts of a step, published figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from ddp_helpers import pictures, scaling
from ddp_helpers.pictures.display import flat_png
from ddp_helpers.scaling import Check, Link, Range, Series, Work

SLOW = Work(fixed=0.0, per_sample=1e-3, size=1e6)
LINK = Link(latency=1e-4, bandwidth=1e8)


def words(figure: Figure) -> str:
    return " | ".join(text.get_text() for text in figure.findobj(Text))


def points(axes: Axes, label: str) -> list[tuple[float, float]]:
    line = next(line for line in axes.lines if str(line.get_label()).startswith(label))
    return [(float(x), float(y)) for x, y in zip(*line.get_data(), strict=True)]


def small_enough(figure: Figure, kilobytes: int = 60) -> bool:
    return len(flat_png(figure)[0]) < kilobytes * 1000


# ---- step_times -----------------------------------------------------------------------------------------------------


def test_each_step_of_each_rank_is_there_with_mean_and_median_of_the_slower_one() -> None:
    seconds = [[0.9, 0.1, 0.1, 0.1], [0.9, 0.2, 0.2, 0.2]]
    figure = pictures.step_times(seconds, warm_up=1)
    for rank, steps in enumerate(seconds):
        assert [y for _, y in points(figure.axes[0], f"rank {rank}")] == steps
    assert "mean of all: 375 ms" in words(figure) and "median after warm-up: 200 ms" in words(figure)
    assert small_enough(figure)


@pytest.mark.parametrize("steps", [[0.011, 0.012, 0.019], [0.9, 0.1, 0.11], [40.0, 0.1, 0.1]])
def test_the_time_axis_has_two_labels_or_more(steps: list[float]) -> None:
    axes = pictures.step_times([steps]).axes[0]
    low, high = axes.get_ylim()
    shown = [at for at in axes.yaxis.get_majorticklocs() if low <= at <= high]
    assert len(shown) >= 2, (low, high, shown)


def test_fractions_of_a_speed_up_are_written_as_fractions() -> None:
    axes = pictures.scaling_curve({"weak": {1: 1.0, 64: 1 / 64}}).axes[0]
    assert axes.yaxis.get_major_formatter()(1 / 64, 0) == "1/64" and axes.yaxis.get_major_formatter()(8, 0) == "8"


@pytest.mark.parametrize(("seconds", "warm_up"), [([[1.0]], 1), ([[1.0, 1.0], [1.0]], 0)])
def test_steps_that_cannot_be_drawn_are_an_error(seconds: list[list[float]], warm_up: int) -> None:
    with pytest.raises(ValueError, match="warm-up"):
        pictures.step_times(seconds, warm_up=warm_up)


# ---- scaling_curve --------------------------------------------------------------------------------------------------


def test_measured_points_and_predicted_lines_are_where_they_belong() -> None:
    figure = pictures.scaling_curve({"weak": {1: 1.0, 2: 1.5}}, {"weak": {1: Range(1, 1, 1), 8: Range(4, 3, 5)}})
    axes = figure.axes[0]
    assert points(axes, "weak, measured") == [(1, 1), (2, 1.5)]
    assert points(axes, "weak, predicted") == [(1, 1), (8, 4)]
    assert points(axes, "ideal") == [(1, 1), (8, 8)]
    band = axes.collections[0].get_paths()[0].vertices
    assert {(8.0, 3.0), (8.0, 5.0)} <= {(float(x), float(y)) for x, y in band}
    assert small_enough(figure)


def test_without_a_prediction_there_are_points_and_the_ideal_line() -> None:
    figure = pictures.scaling_curve({"strong": {1: 1.0, 4: 2.0}})
    assert points(figure.axes[0], "ideal") == [(1, 1), (4, 4)] and "predicted" not in words(figure)


# ---- step_parts -----------------------------------------------------------------------------------------------------


def layers(axes: Axes, at: float) -> list[float]:
    """The upper edges of the filled areas at this number of ranks."""
    edges: Iterable[float] = (
        max(float(y) for x, y in area.get_paths()[0].vertices if float(x) == at) for area in axes.collections
    )
    return list(edges)


@pytest.mark.parametrize("strong", [False, True])
def test_the_parts_of_a_step_add_up_to_the_step(strong: bool) -> None:
    figure = pictures.step_parts(SLOW, LINK, 32, strong)
    last = 32 if strong else 64
    for ranks in (2, last):
        batch = 32 / ranks if strong else 32
        compute, whole = layers(figure.axes[0], ranks)[:2]
        assert compute == pytest.approx(SLOW.compute(batch))
        assert whole == pytest.approx(scaling.step(SLOW, LINK, ranks, batch))
    share = dict(points(figure.axes[1], "_child1"))
    assert share[last] == pytest.approx(100 * scaling.efficiency(SLOW, LINK, last, 32, strong))
    assert max(share) == (32 if strong else 1024)  # strong scaling ends where each rank has one sample
    assert small_enough(figure)


def test_the_title_says_where_communication_overtakes() -> None:
    found = scaling.crossover(SLOW, LINK, 32)
    assert f"takes longer than compute from {found} ranks on" in words(pictures.step_parts(SLOW, LINK, 32))
    assert "stays below compute up to 1024 ranks" in words(pictures.step_parts(SLOW, Link(1e-9, 1e12), 32))
    strong = pictures.step_parts(SLOW, Link(1e-9, 1e12), 32, strong=True)
    assert "stays below compute up to 32 ranks, one sample each" in words(strong)


def test_shared_work_is_held_against_the_step_of_one_rank() -> None:
    axes = pictures.step_parts(SLOW, LINK, 32, strong=True).axes[0]
    assert {y for _, y in points(axes, "a step of one rank")} == {SLOW.compute(32)}


def test_what_backward_hides_is_drawn_inside_compute() -> None:
    hiding = Work(0.0, 1e-3, 1e6, overlap=1)
    figure = pictures.step_parts(hiding, LINK, 32)
    assert "compute that hides" in words(figure) and "hides" not in words(pictures.step_parts(SLOW, LINK, 32))
    compute, _, hidden = figure.axes[0].collections
    assert list(hidden.get_facecolor()[0]) == list(compute.get_facecolor()[0])
    assert hidden.get_hatch() and list(hidden.get_edgecolor()[0]) != list(hidden.get_facecolor()[0])  # it is seen
    low = min(float(y) for x, y in hidden.get_paths()[0].vertices if float(x) == 2)
    assert low == pytest.approx(0.032 - scaling.communication(LINK, 2, 1e6))


# ---- held_out -------------------------------------------------------------------------------------------------------


def test_fitted_and_predicted_rows_differ_and_predicted_ones_carry_their_error() -> None:
    series = Series("made", "nobody", (1, 4, 8, 16), (1.0, 1.1, 1.2, 1.6), ("", "", "", ""))
    checks = [
        *(Check(n, t, t, t, t, True, "") for n, t in ((1, 1.0), (4, 1.1), (8, 1.2))),
        Check(16, 1.6, 1.2, 1.1, 1.7, False, ""),
    ]
    figure = pictures.held_out([(series, checks)])
    assert points(figure.axes[0], "published, fitted") == [(1, 1.0), (4, 1.1), (8, 1.2)]
    assert points(figure.axes[0], "published, predicted") == [(16, 1.6)]
    assert "-25%" in words(figure) and "made" in words(figure) and "nobody" in words(figure)
    assert small_enough(figure)


def test_a_row_whose_workload_changed_is_hollow() -> None:
    series = Series("made", "", (1, 4, 8, 16), (1.0, 1.1, 1.2, 1.6), ("", "", "", "changed"))
    checks = scaling.held_out(series, until=8)
    axes = pictures.held_out([(series, checks)]).axes[0]
    assert points(axes, "published, predicted") == []
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "#FFFFFF" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in hollow] == [[16]]


# ---- the timeline of many small messages ----------------------------------------------------------------------------


def event(category: str, name: str, start: float, end: float, **about: Any) -> dict[str, Any]:
    times = {"ts": start * 1e3, "dur": (end - start) * 1e3}  # from ms
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 9,
        "tid": 1 + (category != "cpu_op"),
        "args": about,
        **times,
    }


def bars(folder: Path, messages: list[tuple[float, float, int]]) -> tuple[str, int]:
    """The words of a timeline of two ranks with these all_reduces (start, end, numbers); how many hatched bars."""
    events = [event("cpu_op", "aten::mm", 0, 1), event("cpu_op", "aten::mm", 99, 100)]
    for start, end, numbers in messages:
        about = {"Input Dims": [[numbers]], "Input type": ["float"]}
        events.append(event("user_annotation", "gloo:all_reduce", start, end, **about))
    for rank in (0, 1):
        info = {"rank": rank, "world_size": 2}
        trace = {"distributedInfo": info, "host_name": "one", "baseTimeNanoseconds": 1, "traceEvents": events}
        (folder / f"trace_{rank}.json").write_text(json.dumps(trace), encoding="utf-8")
    figure = pictures.timeline(str(folder / "trace_*.json")).figure
    hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch() == "////"]
    return words(figure), len(hatched) - 1  # one is the legend's


def test_small_messages_one_after_the_other_share_a_bar_that_counts_them(tmp_path: Path) -> None:
    small = [(10 + 0.4 * n, 10.3 + 0.4 * n, 1) for n in range(200)]
    text, count = bars(tmp_path, small)
    assert "200 × all_reduce 4 B" in text and count == 2  # one a rank
    text, count = bars(tmp_path, [(5.0, 8.0, 1000), *small[:100], (60.0, 60.3, 1)])
    assert "100 × all_reduce 4 B" in text and count == 6  # what is long, and what is far, stays alone
    text, _ = bars(tmp_path, [(start, end, n + 1) for n, (start, end, _) in enumerate(small)])
    assert "200 × all_reduce |" in text  # of many sizes
