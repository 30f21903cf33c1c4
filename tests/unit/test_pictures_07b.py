"""The picture of buckets: which gradients travel together, and what cannot be drawn."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from ddp_helpers import pictures
from ddp_helpers.pictures.buckets import fill
from ddp_helpers.pictures.palette import ALARM, PAPER

MIB = 2**20


def test_a_bucket_is_closed_by_the_gradient_with_which_it_reaches_the_cap() -> None:
    assert fill([3, 3, 3, 3, 3], cap=5, first=5) == [[0, 1], [2, 3], [4]]
    assert fill([3, 2, 3, 2], cap=5, first=5) == [[0, 1], [2, 3]]


def test_the_first_bucket_may_have_a_cap_of_its_own() -> None:
    assert fill([3, 3, 3, 3, 3], cap=25, first=1) == [[0], [1, 2, 3, 4]]


def test_a_block_is_drawn_for_each_gradient_as_wide_as_its_bytes() -> None:
    figure = pictures.buckets([3 * MIB, MIB, 2 * MIB], cap_mb=4)
    blocks = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    widths = [block.get_width() for block in blocks]
    assert widths[0] == pytest.approx(3 * widths[1]) and widths[2] == pytest.approx(2 * widths[1])
    rows = [block.get_y() for block in blocks]
    assert rows[0] == rows[1] > rows[2]
    assert to_hex(figure.get_facecolor()).upper() == PAPER


def test_the_cap_is_drawn_where_a_bucket_can_reach_it() -> None:
    reached, never = pictures.buckets([3 * MIB, 3 * MIB], cap_mb=4), pictures.buckets([MIB], cap_mb=25)
    assert [line.get_color() for line in reached.axes[0].lines].count(ALARM) == 1
    assert ALARM not in [line.get_color() for line in never.axes[0].lines]
    texts = [text.get_text() for text in reached.axes[0].texts]
    assert "6.00 MiB" in texts and "2 gradients in 1 bucket" in texts


@pytest.mark.parametrize(("sizes", "cap"), [([], 4), ([4], 0), ([0], 4)])
def test_nothing_to_draw_is_an_error(sizes: list[int], cap: float) -> None:
    with pytest.raises(ValueError, match="at least one gradient"):
        pictures.buckets(sizes, cap_mb=cap)
