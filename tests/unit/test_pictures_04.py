"""Pictures of lesson 04: one step of several devices, and published speeds side by side."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from build_notebooks import ROOT
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from picture_page import assert_texts_fit

from ddp_helpers import pictures
from ddp_helpers.pictures.palette import PAPER
from ddp_helpers.pictures.parallel_step import LEFT, RIGHT, Event, computing, gaps, in_bytes, spread, stack
from ddp_helpers.pictures.speed_up import ideal, speed_ups

DATAPARALLEL = [
    (0, 10.0, 10.1, "scatter", 131_072),
    (0, 10.1, 10.3, "replicate", 2_000_000),
    (0, 10.3, 10.6, "forward", 0),
    (1, 10.3, 10.7, "forward", 0),
    (0, 10.7, 10.71, "gather", 20_000),
    (0, 10.71, 10.72, "loss", 0),
    (0, 10.72, 10.73, "scatter gradients", 20_000),
    (0, 10.73, 10.9, "backward", 0),
    (1, 10.73, 10.8, "backward", 0),
    (0, 10.9, 11.0, "reduce", 2_000_000),
]
DDP = [
    event
    for rank in (0, 1)
    for event in (
        (rank, 0.0, 0.3, "forward, loss", 0),
        (rank, 0.3, 0.8, "backward", 0),
        (rank, 0.5, 0.7, "all_reduce", 1000),
        (rank, 0.6, 0.9, "all_reduce", 500),
        (rank, 0.8, 1.0, "wait", 0),
    )
]


def published(workload: str) -> list[dict[str, str]]:
    with open(ROOT / "data" / "published_figures.csv", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["topic"] == "dp_vs_ddp" and workload in row["workload"]]


def crowded() -> list[Any]:
    """Eight lanes, and a dozen kinds within the first thousandth of the step."""
    events = [(0, 0.0001 * n, 0.0001 * (n + 1), f"kind {n}", 10**n) for n in range(9)]
    return events + [(lane, 0.001, 1.0, "forward", 0) for lane in range(8)]


EVERY_PICTURE = {
    "DataParallel": lambda: pictures.parallel_step(DATAPARALLEL, "DataParallel"),
    "DDP": lambda: pictures.parallel_step(DDP, "DDP", lanes="rank"),
    "crowded": lambda: pictures.parallel_step(crowded(), "eight GPUs"),
    "one event": lambda: pictures.parallel_step([(0, 1.0, 1.0, "loss", 0)], "nothing takes time"),
    "eight GPUs": lambda: pictures.speed_up(published("ResNet50"), base="1 GPU"),
    "two cards": lambda: pictures.speed_up(published("GPT-2"), base="DataParallel 2 GPU"),
}


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_no_text_leaves_the_page_and_no_two_texts_touch(name: str) -> None:
    figure = EVERY_PICTURE[name]()
    assert_texts_fit(figure)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def bars(figure: Figure, hatched: bool) -> list[Rectangle]:
    found = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return [bar for bar in found if bool(bar.get_hatch()) is hatched]


def height_of(figure: Figure, wanted: str) -> float:
    return next(text.get_position()[1] for text in figure.axes[0].texts if text.get_text() == wanted)


# -- one step --------------------------------------------------------------------------------------------------------


def test_each_bar_lies_where_its_event_was() -> None:
    figure = pictures.parallel_step(DATAPARALLEL, "DataParallel")
    second = RIGHT - LEFT  # this step takes one second
    forward = sorted(bars(figure, hatched=False), key=lambda bar: (bar.get_x(), -bar.get_y()))[:2]
    assert [bar.get_x() for bar in forward] == pytest.approx([LEFT + 0.3 * second] * 2)
    assert [bar.get_width() for bar in forward] == pytest.approx([0.3 * second, 0.4 * second])
    reduce = max(bars(figure, hatched=True), key=lambda bar: bar.get_x())
    assert reduce.get_x() + reduce.get_width() == pytest.approx(RIGHT)


def test_what_computes_has_its_lanes_colour_and_what_moves_is_hatched_below_it() -> None:
    figure = pictures.parallel_step(DATAPARALLEL, "DataParallel")
    lanes = [height_of(figure, f"GPU {lane}") for lane in (0, 1)]
    assert lanes[0] > lanes[1]
    computes, moves = bars(figure, hatched=False), bars(figure, hatched=True)
    assert (len(computes), len(moves)) == (5, 5)
    for lane, middle in enumerate(lanes):
        mine = [bar for bar in computes if 0 < bar.get_y() - middle < 0.5]
        assert {to_hex(bar.get_facecolor()).upper() for bar in mine} == {pictures.colour(lane)}
    assert all(0 < lanes[0] - (bar.get_y() + bar.get_height()) < 0.5 for bar in moves)  # all of them on GPU 0


def test_a_lane_may_have_a_label_of_its_own() -> None:
    written = texts(pictures.parallel_step(DATAPARALLEL, "DataParallel", lanes="thread {0},\nas GPU {0}"))
    assert [text for text in written if "GPU" in text] == ["thread 0,\nas GPU 0", "thread 1,\nas GPU 1"]


def test_a_kind_has_one_number_and_the_legend_adds_up_its_bytes() -> None:
    figure = pictures.parallel_step(DDP, "DDP", lanes="rank")
    written = texts(figure)
    assert [kind for kind in written if kind in ("forward, loss", "backward", "all_reduce", "wait")] == [
        "forward, loss",
        "backward",
        "all_reduce",
        "wait",
    ]
    assert "3 kB between devices" in written  # two ranks with 1000 and 500 each
    assert "one step: 1000.0 ms, 3 kB moved; hatched: between devices" in written
    assert (written.count("1"), written.count("3")) == (2 + 1, 4 + 1)  # on the bars, and in the legend


def test_waiting_is_drawn_empty_and_is_not_counted_as_computing() -> None:
    figure = pictures.parallel_step(DDP, "DDP", lanes="rank")
    assert texts(figure).count("computes 80%") == 2
    empty = [bar for bar in bars(figure, hatched=False) if to_hex(bar.get_facecolor()).upper() == PAPER]
    assert "for the gradients" in texts(figure)
    assert len(empty) == 2 and all(bar.get_linestyle() != "solid" for bar in empty)


def test_transfers_at_the_same_time_do_not_cover_each_other() -> None:
    figure = pictures.parallel_step(DDP, "DDP", lanes="rank")
    boxes = [bar.get_bbox() for bar in bars(figure, hatched=True)]
    assert len(boxes) == 4
    for number, first in enumerate(boxes):
        for second in boxes[number + 1 :]:
            across = min(first.x1, second.x1) - max(first.x0, second.x0)
            up = min(first.y1, second.y1) - max(first.y0, second.y0)
            assert across < 1e-9 or up < 1e-9


def test_times_at_work_overlap_only_once() -> None:
    events = [Event(0, 0, 2, "a", 0), Event(0, 1, 3, "b", 0), Event(0, 5, 6, "c", 0), Event(0, 6, 9, "d", 7)]
    assert computing(events) == 4
    assert stack(events) == [0, 1, 0, 0]


def test_a_long_gap_in_a_lane_is_labelled_where_it_is() -> None:
    figure = pictures.parallel_step(DATAPARALLEL, "DataParallel")
    places = [text.get_position() for text in figure.axes[0].texts if text.get_text() == "waits"]
    second = RIGHT - LEFT  # this step takes one second
    for lane, middles in ((0, [0.65]), (1, [0.15, 0.9])):  # GPU 1 has another gap, too short for a label
        lowest = height_of(figure, f"GPU {lane}")
        found = [x for x, y in places if 0 < y - lowest < 0.4]
        assert found == pytest.approx([LEFT + middle * second for middle in middles])
    assert len(places) == 3


def test_gaps_are_the_times_that_no_event_covers() -> None:
    events = [Event(0, 1, 4, "a", 0), Event(0, 2, 3, "b", 7), Event(0, 5, 6, "c", 0)]
    assert gaps(events, 0, 9) == [(0, 1), (4, 5), (6, 9)]
    assert gaps(events, 1, 6) == [(4, 5)]


def test_numbers_are_spread_in_their_order_and_none_leaves_the_page() -> None:
    placed = spread([1.0, 1.0, 1.1, 9.9], apart=0.5, last=10.0)
    assert placed == pytest.approx([1.0, 1.5, 2.0, 9.9])
    assert spread([9.9, 9.9, 9.9], apart=0.5, last=10.0) == pytest.approx([9.0, 9.5, 10.0])


def test_bytes_are_told_in_their_unit() -> None:
    assert [in_bytes(count) for count in (12, 2300, 2_300_000, 1.5e9)] == ["12 B", "2.3 kB", "2.3 MB", "1.5 GB"]


def test_without_events_there_is_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="no events"):
        pictures.parallel_step([], "nothing")


# -- published speeds ------------------------------------------------------------------------------------------------


def test_times_are_turned_into_speeds_and_rates_are_not() -> None:
    rows = [{"setting": "1 GPU", "value": "90", "unit": "s/epoch"}, {"setting": "b", "value": "50", "unit": "s/epoch"}]
    assert speed_ups(rows, "1 GPU") == [1.0, 1.8]
    rates = [{**row, "unit": "images/s"} for row in rows]
    assert speed_ups(rates, "b") == [1.8, 1.0]


def test_a_bar_is_as_long_as_its_speed_and_the_ideal_is_dashed_behind_it() -> None:
    figure = pictures.speed_up(published("ResNet50"), base="1 GPU")
    drawn = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    solid = [bar.get_width() for bar in drawn if bar.get_linestyle() == "solid"]
    dashed = [bar.get_width() for bar in drawn if bar.get_linestyle() != "solid"]
    times = [1786.8, 984.6, 239.4]
    assert [width / solid[0] for width in solid] == pytest.approx([times[0] / time for time in times])
    assert [width / solid[0] for width in dashed] == pytest.approx([8, 8])
    assert {"1.00×", "1.81×", "7.46×"} <= set(texts(figure))


def test_hardware_and_source_stand_on_the_picture() -> None:
    written = texts(pictures.speed_up(published("GPT-2"), base="DataParallel 2 GPU"))
    assert "Source: Hugging Face docs perf_train_gpu_many" in written
    assert "2x TITAN RTX without NVLink, 131.4 s" in written  # beside its own bar, where hardware differs
    assert {"1.00×", "1.09×", "0.84×"} <= set(written)
    assert not any(text.startswith("ideal") for text in written)


def test_the_ideal_is_the_ratio_of_gpus() -> None:
    assert ideal("DDP 8 GPU", "1 GPU") == 8
    assert ideal("16 GPU", "4 GPU") == 4
    assert ideal("DDP 2 GPU", "DataParallel 2 GPU") is None
    assert ideal("FP16", "FP32") is None


def test_what_cannot_be_compared_is_refused() -> None:
    rows = published("ResNet50")
    with pytest.raises(ValueError, match="no row has the setting '2 GPU'"):
        pictures.speed_up(rows, base="2 GPU")
    with pytest.raises(ValueError, match="their units are"):
        pictures.speed_up([*rows, {**rows[0], "unit": "images/s"}], base="1 GPU")
