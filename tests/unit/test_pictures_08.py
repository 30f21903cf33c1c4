"""Pictures of lesson 08: the attempts of a job that was started anew."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from picture_page import assert_texts_fit

from ddp_helpers import pictures
from ddp_helpers.pictures.restarts import read_attempts


def lines(rank: int, attempt: int, *places: tuple[int, int], killed: bool = False) -> list[dict[str, float]]:
    steps = [{"rank": rank, "epoch": float(epoch), "step": float(step)} for epoch, step in places]
    return [{"rank": rank, "attempt": float(attempt)}, *steps, *([{"rank": rank, "killed": 1.0}] if killed else [])]


EPOCH0, EPOCH1 = [(0, 0), (0, 1)], [(1, 0), (1, 1)]
RESTARTED = [
    *lines(0, 0, *EPOCH0, *EPOCH1),
    *lines(1, 0, *EPOCH0, (1, 0), killed=True),
    *lines(1, 1, *EPOCH1),
    *lines(0, 1, *EPOCH1),
]
EVERY_PICTURE = {
    "restarted": RESTARTED,
    "undisturbed": lines(0, 0, *EPOCH0),
    "no attempt printed": lines(0, 0, *EPOCH0)[1:],
    "many steps": [line for rank in range(4) for line in lines(rank, 0, *((e, s) for e in range(5) for s in range(9)))],
    "killed at once": [*lines(0, 0, killed=True), *lines(0, 1, *EPOCH0)],
}


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_no_text_leaves_the_white_page_and_no_two_texts_touch(name: str) -> None:
    figure = pictures.restarts(EVERY_PICTURE[name])
    assert_texts_fit(figure)


def cells(figure: Any) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def test_steps_that_a_later_attempt_makes_again_are_hatched() -> None:
    figure = pictures.restarts(RESTARTED)
    hatched = [bool(cell.get_hatch()) for cell in cells(figure)]
    assert hatched == [False, False, True, True, False, False, True, *[False] * 4]
    assert "2 attempts, 2 steps made again" in figure.axes[0].texts[0].get_text()


def test_each_rank_has_its_colour_and_equal_steps_stand_below_each_other() -> None:
    drawn = cells(pictures.restarts(RESTARTED))
    assert to_hex(drawn[0].get_facecolor()).upper() == pictures.colour(0)
    assert to_hex(drawn[4].get_facecolor()).upper() == pictures.colour(1)
    assert drawn[2].get_x() == drawn[7].get_x() == drawn[9].get_x()
    assert drawn[2].get_y() > drawn[6].get_y() > drawn[7].get_y() > drawn[9].get_y()


def test_a_cross_stands_after_the_last_step_of_a_rank_that_was_killed() -> None:
    figure = pictures.restarts(RESTARTED)
    (cross,) = [line for line in figure.axes[0].lines if line.get_marker() == "X"]
    killed = cells(figure)[6]
    assert killed.get_x() + killed.get_width() < cross.get_xdata()[0] < killed.get_x() + 3 * killed.get_width()
    assert killed.get_y() < cross.get_ydata()[0] < killed.get_y() + killed.get_height()


def test_attempts_are_read_rank_by_rank_in_whatever_order_their_lines_come() -> None:
    by_rank = sorted(RESTARTED, key=lambda line: line["rank"])  # all of rank 0, then all of rank 1
    for order in (RESTARTED, by_rank):
        first, second = read_attempts(order)
        assert first.steps == {0: [*EPOCH0, *EPOCH1], 1: [*EPOCH0, (1, 0)]} and first.killed == {1}
        assert second.steps == {0: EPOCH1, 1: EPOCH1} and not second.killed


def test_lines_without_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="epoch"):
        pictures.restarts([{"rank": 0, "loss": 1.0}])
