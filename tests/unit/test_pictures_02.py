"""Pictures of lesson 02: what each rank holds before and after, and what a message costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from picture_page import assert_texts_fit

from ddp_helpers import pictures
from ddp_helpers.explore.collectives import CODE, result
from ddp_helpers.pictures.collective import origin, senders, sources
from ddp_helpers.pictures.message_cost import TIMES, UNITS, human
from ddp_helpers.pictures.palette import BOX, PAPER

ROWS = [[10.0 * rank + number for number in range(4)] for rank in range(4)]
SIZES = [4**k for k in range(1, 13)]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def cells(figure: Figure) -> list[tuple[str, str]]:
    """Each cell's number and colour, from the top row down, a row's before before its after."""
    found = []
    rows = [c for c in figure.axes[0].collections if isinstance(c, PatchCollection)]
    for row in rows:
        for path, face in zip(row.get_paths(), row.get_facecolors() if len(row.get_facecolors()) else [], strict=True):
            box = path.get_extents()
            middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
            text = next(t for t in figure.axes[0].texts if t.get_position() == pytest.approx(middle))
            found.append((text.get_text(), to_hex(face).upper()))
    return found


def lines(figure: Figure) -> set[tuple[float, float, str]]:
    """Each line's start and end height and its colour."""
    found = set()
    for collection in figure.axes[0].collections:
        if isinstance(collection, LineCollection):
            for (start, end), line_colour in zip(collection.get_segments(), collection.get_colors(), strict=True):
                found.add((round(float(start[1]), 2), round(float(end[1]), 2), to_hex(line_colour).upper()))
    return found


# ---- collective --------------------------------------------------------------------------------------------------


def test_a_value_keeps_the_colour_of_the_rank_it_came_from() -> None:
    shown = cells(pictures.collective({"all_gather": ([[7], [8]], [[7, 8], [7, 8]])}))
    blue, orange = pictures.colour(0), pictures.colour(1)
    assert shown == [("7", blue), ("7", blue), ("8", orange), ("8", orange), ("7", blue), ("8", orange)]


def test_a_value_made_of_several_is_white() -> None:
    shown = cells(pictures.collective({"all_reduce": ([[1], [2]], [[3], [3]])}))
    assert [colour for text, colour in shown if text == "3"] == [PAPER, PAPER]


def test_what_reduce_leaves_on_the_others_is_hatched_and_has_no_line() -> None:
    figure = pictures.collective({"reduce": ([[1], [2], [4]], [[3], [7], [4]])}, root=1)
    hatched = [c for c in figure.axes[0].collections if isinstance(c, PatchCollection) and c.get_hatch()]
    assert len(hatched) == 2
    assert [text for text, colour in cells(figure) if colour == BOX] == ["3", "4"]
    assert len({end for _, end, _ in lines(figure)}) == 1 and len(lines(figure)) == 3
    assert any("hatched: not defined" in text for text in texts(figure))


def test_lines_lead_from_the_root_to_all_in_its_colour() -> None:
    drawn = lines(pictures.collective({"broadcast": ([[1], [2], [3]], [[2], [2], [2]])}))
    assert len(drawn) == 3 and len({start for start, _, _ in drawn}) == 1
    assert {colour for _, _, colour in drawn} == {pictures.colour(1)}


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "broadcast": [{0}] * 4,
        "scatter": [{0}] * 4,
        "gather": [{0, 1, 2, 3}, set(), set(), set()],
        "reduce": [{0, 1, 2, 3}, set(), set(), set()],
        "all_reduce": [{0, 1, 2, 3}] * 4,
        "all_gather": [{0, 1, 2, 3}] * 4,
        "reduce_scatter": [{0, 1, 2, 3}] * 4,
        "all_to_all": [{0, 1, 2, 3}] * 4,
        "send and recv": [{3}, {0}, {1}, {2}],
    }.items(),
)
def test_each_ranks_result_comes_from_the_right_ranks(name: str, expected: list[set[int]]) -> None:
    before, after = result(name, ROWS)
    assert [senders(rank, before, after) for rank in range(4)] == expected
    assert set(CODE) >= {name}


def test_a_step_of_a_ring_takes_from_the_rank_itself_and_one_other() -> None:
    before: Any = [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
    assert sources(22 + 2, 2, receiver=0, before=before) == {0, 2}
    assert origin(12, before) == 1 and origin(24, before) is None
    assert origin(5, [[5], [5]]) is None  # two ranks held it: nobody can tell


def test_both_steps_of_the_lessons_ring_have_each_ranks_two_lines() -> None:
    start: Any = [[1, 2, 3], [10, 20, 30], [100, 200, 300]]
    between: Any = [[1, 2, 303], [11, 20, 30], [100, 220, 300]]
    end: Any = [[1, 222, 303], [11, 20, 333], [111, 220, 300]]
    for before, after in ((start, between), (between, end)):
        assert [senders(rank, before, after) for rank in range(3)] == [{0, 2}, {1, 0}, {2, 1}]
    figure = pictures.collective({"step 2": (between, end)})
    assert sorted(text for text, colour in cells(figure) if colour == PAPER) == ["111", "222", "333"]
    assert any("stood on that rank alone before" in text for text in texts(figure))


def test_a_runs_values_are_those_that_its_ranks_returned() -> None:
    def rank(number: int) -> Any:
        before, after = {"shift": torch.tensor([number + 1.5])}, {"shift": [2.5 - number]}
        return SimpleNamespace(rank=number, returned={"before": before, "after": after})

    figure = pictures.collective(SimpleNamespace(ranks=[rank(0), rank(1)]))  # type: ignore[arg-type]
    assert [text for text, _ in cells(figure)] == ["1.5", "2.5", "2.5", "1.5"]
    assert "shift" in texts(figure) and "rank 1" in texts(figure)


def test_a_rank_that_has_nothing_is_drawn_with_a_dash() -> None:
    assert texts(pictures.collective({"scatter": ([[1, 2], []], [[1], [2]])})).count("–") == 1


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("number", [1.0, -12345.678, 1e-7])
def test_no_text_leaves_the_page_and_no_two_texts_touch(ranks: int, number: float) -> None:
    rows = [[number * (rank + 1), rank] for rank in range(ranks)]
    gathered = ([[rank] for rank in range(ranks)], [[*range(ranks)]] * ranks)
    figure = pictures.collective({"broadcast": (rows, [rows[0]] * ranks), "all_gather": gathered}, title="two of them")
    assert_texts_fit(figure)


def test_panels_stand_side_by_side_as_far_as_the_page_goes() -> None:
    one = pictures.collective({"a": (ROWS, ROWS)})
    two = pictures.collective({"a": (ROWS, ROWS), "b": (ROWS, ROWS)})
    three = pictures.collective({"a": (ROWS, ROWS), "b": (ROWS, ROWS), "c": (ROWS, ROWS)})
    assert one.get_figwidth() < two.get_figwidth() == three.get_figwidth() <= 10
    assert two.get_figheight() < three.get_figheight()


def test_a_run_without_the_two_dicts_says_what_to_return() -> None:
    run = SimpleNamespace(ranks=[SimpleNamespace(rank=0, returned={"before": 3})])
    with pytest.raises(ValueError, match="--return before --return after"):
        pictures.collective(run)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 ranks before, but 1 after"):
        pictures.collective({"x": ([[1], [2]], [[1]])})
    with pytest.raises(ValueError, match="no collective"):
        pictures.collective({})


# ---- message_cost ------------------------------------------------------------------------------------------------


def test_the_fit_finds_latency_and_bandwidth() -> None:
    cost = pictures.fit_cost(SIZES, [3e-4 + size / 2e9 for size in SIZES])
    assert cost.latency == pytest.approx(3e-4) and cost.bandwidth == pytest.approx(2e9)
    assert cost.seconds(cost.knee) == pytest.approx(2 * cost.latency)


def test_small_messages_count_as_much_as_large_ones_in_the_fit() -> None:
    times = [3e-4 + size / 2e9 for size in SIZES]
    times[-1] *= 1.3  # absolute errors alone would let this one point choose the latency
    assert pictures.fit_cost(SIZES, times).latency == pytest.approx(3e-4, rel=0.05)


@pytest.mark.parametrize(
    "times", [[5e-3] * 12, [1e-3 / (k + 1) for k in range(12)], [size**2 * 1e-9 for size in SIZES]]
)
def test_noise_gives_no_negative_cost(times: list[float]) -> None:
    cost = pictures.fit_cost(SIZES, times)
    assert cost.latency > 0 and cost.bandwidth > 0


@pytest.mark.parametrize(
    ("sizes", "seconds"), [([4], [1.0]), ([4, 4], [1.0, 1.0]), ([4, 8], [1.0]), ([4, 8], [1.0, 0.0])]
)
def test_a_fit_of_too_little_is_an_error(sizes: list[int], seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="two different sizes"):
        pictures.fit_cost(sizes, seconds)


def test_every_measured_point_is_drawn_beside_its_line() -> None:
    times = {2: (SIZES, [3e-4 + size / 2e9 for size in SIZES]), 4: (SIZES, [6e-4 + size / 1e9 for size in SIZES])}
    figure = pictures.message_cost(times)
    axes = figure.axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    points = [line for line in axes.lines if line.get_marker() in ("o", "s")]
    assert [list(line.get_xdata()) for line in points] == [SIZES, SIZES]
    assert [list(line.get_ydata()) for line in points] == [times[2][1], times[4][1]]
    curves = [line for line in axes.lines if len(line.get_xdata()) == 200]
    assert {line.get_linestyle() for line in curves} == {"-", "--"}  # told apart without colour
    assert curves[0].get_ydata()[0] == pytest.approx(times[2][1][0], rel=1e-3)


def test_the_legend_gives_latency_bandwidth_and_the_size_between() -> None:
    figure = pictures.message_cost({2: (SIZES, [3e-4 + size / 2e9 for size in SIZES])})
    (label,) = (text.get_text() for text in figure.axes[0].get_legend().get_texts())
    assert label == "2 ranks: 300 µs + bytes / (2 GB/s); half and half at 600 kB"


@pytest.mark.parametrize(
    ("value", "units", "shown"),
    [
        (4e6, UNITS, "4 MB"),
        (1.25e9, UNITS, "1.2 GB"),
        (0.00025, TIMES, "250 µs"),
        (0.0123, TIMES, "12 ms"),
        (7, UNITS, "7 B"),
    ],
)
def test_numbers_are_said_in_units(value: float, units: Any, shown: str) -> None:
    assert human(value, units) == shown
