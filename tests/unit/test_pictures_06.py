"""Pictures of lesson 06: number formats, gradients and their fates, the loss scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from picture_page import assert_texts_fit

from ddp_helpers import pictures
from ddp_helpers.pictures.gradient_histogram import HIGH, LOW, fates, zone_edges
from ddp_helpers.pictures.loss_scale import skipped_steps
from ddp_helpers.pictures.number_formats import read_formats


def some_gradients() -> Any:
    """Most are subnormal in fp16 or die in it; one in five is exactly 0."""
    random = np.random.default_rng(0)
    sizes = np.exp2(random.normal(-20, 6, 8000)) * random.choice([-1, 1], 8000)
    return torch.from_numpy(np.concatenate([sizes, np.zeros(2000)]))


EVERY_PICTURE = {
    "formats": lambda: pictures.number_formats(),
    "one format": lambda: pictures.number_formats([torch.bfloat16]),
    "gradients": lambda: pictures.gradient_histogram(some_gradients()),
    "scaled gradients": lambda: pictures.gradient_histogram(some_gradients(), scale=2.0**16),
    "bf16": lambda: pictures.gradient_histogram(some_gradients(), dtype=torch.bfloat16),
    "scale": lambda: pictures.loss_scale([4.0, 4, 8, 8, 4, 4]),
    "steady": lambda: pictures.loss_scale([4.0, 4, 4]),
    "four ranks": lambda: pictures.loss_scale({rank: [65536.0, 65536 / 2**rank, 4.0] for rank in range(4)}),
}


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_no_text_leaves_the_white_page_and_no_two_texts_of_a_picture_touch(name: str) -> None:
    figure = EVERY_PICTURE[name]()
    assert_texts_fit(figure)


# -- number formats --------------------------------------------------------------------------------------------------


def test_formats_are_read_from_finfo() -> None:
    half, brain, full = read_formats()
    assert (half.largest, half.smallest, half.spacing) == (65504.0, 2.0**-24, 2.0**-10)
    assert (brain.smallest, brain.spacing) == (2.0**-133, 2.0**-7)
    assert (full.smallest_normal, full.smallest) == (brain.smallest_normal, 2.0**-149)


def test_bars_are_as_long_as_the_range_in_powers_of_two() -> None:
    figure = pictures.number_formats()
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    normal = [bar.get_width() for bar in bars[:6:2]]
    powers = [math.log2(f.largest) - math.log2(f.smallest_normal) for f in read_formats()]
    assert np.array(normal) / normal[0] == pytest.approx(np.array(powers) / powers[0])
    assert all(bar.get_hatch() for bar in bars[1:6:2]) and not any(bar.get_hatch() for bar in bars[:6:2])


def test_there_is_a_tick_for_every_number_where_they_can_be_told_apart() -> None:
    lines = pictures.number_formats().axes[0].lines
    upright = [line for line in lines if line.get_linestyle() == "-"]
    heights = [round(float(line.get_ydata()[0]), 6) for line in upright]
    assert sorted(heights.count(height) for height in set(heights)) == [9, 65]  # bf16: 8 steps, fp16: 64


def test_the_largest_numbers_are_written_out() -> None:
    texts = [text.get_text() for text in pictures.number_formats().axes[0].texts]
    assert {"65504", "3.39e38", "3.40e38"} <= set(texts)


def test_no_format_and_no_float_are_refused() -> None:
    with pytest.raises(ValueError, match="no dtype"):
        pictures.number_formats([])
    with pytest.raises(TypeError):
        pictures.number_formats([torch.int32])


# -- gradients -------------------------------------------------------------------------------------------------------


def test_fates_are_those_of_the_format_itself() -> None:
    values = [0.0, 1.0, 2.0**-15, 2.0**-25, 2.0**-24, 65504.0, 65520.0, 1e30]
    found = fates(values)
    assert (found.zero, found.subnormal, found.inf) == pytest.approx((1 / 7, 2 / 7, 2 / 7))
    assert found.normal == pytest.approx(2 / 7) and found.exact_zeros == pytest.approx(1 / 8)
    assert fates(values, dtype=torch.bfloat16).normal == 1


def test_a_scale_moves_the_bars_and_not_the_zones() -> None:
    figure = pictures.gradient_histogram(some_gradients(), scale=2.0**16)
    before, after = (np.array([bar.get_height() for bar in bars(axes)]) for axes in figure.axes)
    assert len(before) == HIGH - LOW and before.sum() == pytest.approx(1)
    assert before[8:40] == pytest.approx(after[24:56])
    assert [text.get_text().split("\n")[0] for text in figure.axes[1].texts] == [
        "becomes 0",
        "subnormal",
        "normal",
        "overflows",
    ]


def bars(axes: Any) -> list[Any]:
    return [bar for container in axes.containers for bar in container]


def test_the_shares_that_are_written_are_those_that_are_counted() -> None:
    gradients = some_gradients()
    figure = pictures.gradient_histogram(gradients, scale=1024.0)
    for axes, factor in zip(figure.axes, (1.0, 1024.0), strict=True):
        shares = fates(gradients, factor)
        written = [text.get_text().split("\n")[1] for text in axes.texts]
        assert written == [f"{share:.1%}" for share in (shares.zero, shares.subnormal, shares.normal, shares.inf)]
    title = figure.get_suptitle()
    assert "8,000 gradients" in title and "(2,000 others are exactly 0 already)" in title
    assert "(" not in pictures.gradient_histogram([1.0, 2.0]).get_suptitle()


def test_zones_of_fp16_begin_at_its_own_limits() -> None:
    assert zone_edges() == pytest.approx((-25, -14, 16), abs=0.001)


def test_gradients_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="infinite or NaN"):
        pictures.gradient_histogram([1.0, math.inf])
    with pytest.raises(ValueError, match="other than 0"):
        pictures.gradient_histogram([0.0, 0.0])


# -- loss scale ------------------------------------------------------------------------------------------------------


def crosses(figure: Figure) -> list[tuple[float, float]]:
    drawn = [line for line in figure.axes[0].lines if line.get_marker() == "X" and len(line.get_xdata())]
    return [point for line in drawn for point in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def test_a_step_after_which_the_scale_is_smaller_is_crossed() -> None:
    figure = pictures.loss_scale([4.0, 4, 8, 8, 4, 4])
    assert crosses(figure) == [(3, 8.0)]
    assert figure.axes[0].get_title(loc="left").startswith("1 of 5 steps skipped")
    assert skipped_steps([8, 8, 4, 8]) == [1]


def test_each_rank_has_a_line_and_its_own_crosses() -> None:
    figure = pictures.loss_scale({0: [4.0, 4, 4], 1: [4.0, 2, 2]})
    assert "drifted apart: skipped 0 by rank 0, 1 by rank 1" in figure.axes[0].get_title(loc="left")
    names = {line.get_label(): line for line in figure.axes[0].lines}
    for rank in (0, 1):
        assert to_hex(names[f"rank {rank}"].get_color()).upper() == pictures.colour(rank)
    assert names["rank 0"].get_linestyle() != names["rank 1"].get_linestyle()  # seen without colour, too
    assert [x for x, _ in crosses(figure)] == [0]


def test_ranks_that_agree_are_said_to_and_do_not_hide_each_other() -> None:
    figure = pictures.loss_scale({0: [4.0, 4, 4], 1: [4.0, 4, 4]})
    assert figure.axes[0].get_title(loc="left").startswith("the ranks agree")
    first, second = (line.get_ydata() for line in figure.axes[0].lines[:3:2])
    assert first[0] < second[0] < first[0] * 1.2
    assert "equal scales are drawn a little apart" in figure.axes[0].get_xlabel()
    assert pictures.loss_scale([4.0, 4]).axes[0].get_xlabel() == "step"


def test_scales_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two scales"):
        pictures.loss_scale([4.0])
    with pytest.raises(ValueError, match="different numbers of steps"):
        pictures.loss_scale({0: [4.0, 4.0], 1: [4.0, 4.0, 4.0]})
