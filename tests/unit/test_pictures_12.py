"""Pictures of lesson 12: a pipeline's schedule, what each rank holds, and the chart of decisions."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from picture_page import assert_texts_fit

from ddp_helpers import pictures
from ddp_helpers.exercises.lesson12 import gpipe, one_f_one_b
from ddp_helpers.pictures.pipeline import bubble, layout, most_held

HELD = {"parameters": 2**20, "gradients": 2**20, "optimizer": 2**21}
EVERY_PICTURE = {
    "a pipeline": lambda: pictures.pipeline(gpipe(3, 4), "GPipe"),
    "by turns, without a title": lambda: pictures.pipeline(one_f_one_b(4, 8)),
    "many micro-batches": lambda: pictures.pipeline(one_f_one_b(4, 20), "1F1B"),
    "one stage": lambda: pictures.pipeline(gpipe(1, 1)),
    "memory": lambda: pictures.memory_per_rank({"DDP": [HELD] * 2, "FSDP": [HELD]}, "Held"),
    "the chart": pictures.which_parallel,
}


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_no_text_leaves_the_white_page_and_no_two_texts_touch(name: str) -> None:
    figure = EVERY_PICTURE[name]()
    assert_texts_fit(figure)


def rectangles(figure: Figure) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def test_a_piece_begins_when_its_stage_is_free_and_its_input_is_there() -> None:
    starts = {(piece.stage, piece.kind, piece.micro): piece.start for piece in layout(gpipe(2, 2))}
    assert [starts[0, "F", 0], starts[0, "F", 1], starts[1, "F", 0], starts[1, "F", 1]] == [0, 1, 1, 2]
    assert [starts[1, "B", 0], starts[0, "B", 0], starts[1, "B", 1], starts[0, "B", 1]] == [3, 4, 4, 5]


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("micros", [1, 3, 8])
def test_the_bubble_of_both_schedules_is_that_of_the_formula(stages: int, micros: int) -> None:
    right = (stages - 1) / (micros + stages - 1)
    assert bubble(gpipe(stages, micros)) == pytest.approx(right)
    assert bubble(one_f_one_b(stages, micros)) == pytest.approx(right)


def test_gpipe_holds_all_micro_batches_and_1f1b_as_many_as_stages_follow() -> None:
    assert [most_held(order) for order in gpipe(3, 8)] == [8, 8, 8]
    assert [most_held(order) for order in one_f_one_b(3, 8)] == [3, 2, 1]


def test_stages_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="for ever"):
        layout([["B0", "F0"], ["F0", "B0"]])


def test_forwards_are_plain_backwards_hatched_each_in_its_ranks_colour_and_at_its_time() -> None:
    pieces = layout(gpipe(2, 2))
    drawn = rectangles(pictures.pipeline(gpipe(2, 2)))
    assert [bool(patch.get_hatch()) for patch in drawn] == [piece.kind == "B" for piece in pieces]
    assert to_hex(drawn[0].get_facecolor()).upper() == pictures.colour(0)
    assert to_hex(drawn[4].get_facecolor()).upper() == pictures.colour(1)
    by_time = sorted(range(len(pieces)), key=lambda n: (pieces[n].start, pieces[n].stage))
    assert by_time == sorted(range(len(pieces)), key=lambda n: (round(drawn[n].get_x(), 3), pieces[n].stage))


def test_a_bar_is_as_long_as_its_bytes() -> None:
    half = {name: value // 2 for name, value in HELD.items()}
    figure = pictures.memory_per_rank({"DDP": [HELD], "FSDP": [half]})
    whole, cut = rectangles(figure)[:3], rectangles(figure)[3:6]
    assert whole[2].get_width() == pytest.approx(2 * whole[0].get_width())
    assert [2 * part.get_width() for part in cut] == pytest.approx([part.get_width() for part in whole])
    assert "4.0 MiB" in [text.get_text() for text in figure.axes[0].texts]


def test_the_chart_asks_for_the_cheapest_way_first() -> None:
    texts = {text.get_text(): text.get_position()[1] for text in pictures.which_parallel().axes[0].texts}
    heights = [texts[name] for name in ("DDP", "DDP + ZeRO-1", "FSDP", "tensor parallel", "pipeline")]
    assert heights == sorted(heights, reverse=True)
