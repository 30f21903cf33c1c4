"""Lesson 09's picture: the collectives that each rank has called."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from ddp_helpers import pictures
from ddp_helpers.pictures.palette import ALARM


def call(number: int, name: str, ended: bool = True) -> dict[str, object]:
    return {"number": number, "call": name, "ended": ended, "line": 30 + number}


CALLS = [
    [call(7, "all_reduce"), call(8, "barrier", ended=False)],
    [call(7, "all_reduce"), call(8, "all_reduce", ended=False)],
    [call(7, "all_reduce")],
]


def test_one_box_a_call_and_the_open_ones_stand_out() -> None:
    figure = pictures.calls_made(CALLS)
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("#7 all_reduce\nline 37") == 3 and "#8 barrier\nline 38" in texts
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(boxes) == 5
    assert [to_hex(box.get_edgecolor()).upper() for box in boxes].count(ALARM) == 2


def test_calls_with_one_number_stand_in_one_column_on_the_page() -> None:
    (axes,) = pictures.calls_made(CALLS).axes
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len({round(box.get_x(), 6) for box in boxes}) == 2 and len({round(box.get_y(), 6) for box in boxes}) == 3
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for box in boxes:
        assert left < box.get_x() and box.get_x() + box.get_width() < right
        assert low < box.get_y() and box.get_y() + box.get_height() < high


def test_no_calls() -> None:
    with pytest.raises(ValueError, match="no rank has called anything"):
        pictures.calls_made([[], []])
