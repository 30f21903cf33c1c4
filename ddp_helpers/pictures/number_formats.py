"""Number formats side by side: how far each reaches, and how close its numbers lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .canvas import canvas, small, write
from .palette import LINE, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, LEFT, RIGHT = 8.6, 1.35, 8.3
ROW = 0.62
FILL = "#5B7F95"  # no rank's colour: formats are no ranks
WINDOW = 2.0**-4  # the stretch above 1 whose numbers are drawn one by one
MOST_TICKS = 128


@dataclass(frozen=True)
class Format:
    """Binary powers: the largest number, the smallest normal and the smallest of all; and the spacing at 1."""

    name: str
    largest: float
    smallest_normal: float
    smallest: float
    spacing: float


def number_formats(dtypes: Sequence[Any] | None = None) -> Figure:
    """Draw the range of floating-point formats, and the numbers that each has just above 1.

        pictures.number_formats([torch.float16, torch.bfloat16, torch.float32])

    dtypes  torch's floating types; the three above when left out. All figures come from `torch.finfo`.
    Above: powers of two from the smallest to the largest number, hatched where numbers are subnormal and lose bits.
    Below: one tick a number, from 1 to 1.0625. Raises ValueError for no dtype, TypeError for one that is no float.
    """
    formats = read_formats(dtypes)
    height = 2.35 + 2 * ROW * len(formats)
    figure, axes = canvas(WIDTH, height, "16 bits buy range, or closeness")
    top = height - 0.65
    _draw_ranges(axes, formats, top)
    _draw_spacing(axes, formats, top - 0.85 - ROW * len(formats))
    return figure


def read_formats(dtypes: Sequence[Any] | None = None) -> list[Format]:
    import torch

    chosen = (torch.float16, torch.bfloat16, torch.float32) if dtypes is None else dtypes
    if not chosen:
        raise ValueError("no dtype was given, so there is nothing to draw")
    infos = [torch.finfo(dtype) for dtype in chosen]
    return [
        Format(info.dtype, info.max, info.smallest_normal, info.smallest_normal * info.eps, info.eps) for info in infos
    ]


def _draw_ranges(axes: Axes, formats: list[Format], top: float) -> None:
    from matplotlib.patches import Rectangle

    low = min(math.log2(format.smallest) for format in formats) - 8
    high = max(math.log2(format.largest) for format in formats) + 8

    def at(value: float) -> float:
        return LEFT + (math.log2(value) - low) / (high - low) * (RIGHT - LEFT)

    write(axes, 0.15, top, "range", weight="bold", ha="left")
    for row, format in enumerate(formats):
        y = top - 0.42 - row * ROW
        write(axes, 0.15, y, format.name, ha="left", family="monospace")
        start, middle, end = at(format.smallest), at(format.smallest_normal), at(format.largest)
        axes.add_patch(Rectangle((middle, y - 0.11), end - middle, 0.22, fc=FILL, ec=TEXT, lw=0.8, zorder=3))
        axes.add_patch(
            Rectangle((start, y - 0.11), middle - start, 0.22, fc="#FFFFFF", ec=TEXT, lw=0.8, hatch="////", zorder=3)
        )
        small(axes, start, y - 0.27, _power(format.smallest), ha="center")
        small(axes, end, y - 0.27, _decimal(format.largest), ha="center")
    one, bottom = at(1.0), top - 0.42 - (len(formats) - 1) * ROW - 0.3
    axes.plot([one, one], [bottom, top - 0.15], color=LINE, lw=1.2, ls="--", zorder=1)
    small(axes, one, top - 0.05, "1")
    note = "powers of two; left end: the smallest number above 0; hatched: subnormal, the fewer bits the smaller"
    small(axes, LEFT, bottom - 0.22, note, ha="left")


def _draw_spacing(axes: Axes, formats: list[Format], top: float) -> None:
    from matplotlib.patches import Rectangle

    write(axes, 0.15, top, "closeness", weight="bold", ha="left")
    for row, format in enumerate(formats):
        y = top - 0.42 - row * ROW
        write(axes, 0.15, y, format.name, ha="left", family="monospace")
        steps = round(WINDOW / format.spacing)
        if steps <= MOST_TICKS:
            for step in range(steps + 1):
                x = LEFT + step / steps * (RIGHT - LEFT)
                axes.plot([x, x], [y - 0.12, y + 0.12], color=FILL, lw=2.0 if steps < 32 else 1.2, zorder=3)
        else:
            axes.add_patch(Rectangle((LEFT, y - 0.12), RIGHT - LEFT, 0.24, fc=FILL, ec=TEXT, lw=0.8, zorder=3))
        small(axes, RIGHT, y - 0.27, f"{steps:,} steps of {_power(format.spacing)}", ha="right")
    bottom = top - 0.42 - (len(formats) - 1) * ROW - 0.5
    small(axes, LEFT, bottom, "1", ha="center")
    small(axes, RIGHT, bottom, f"{1 + WINDOW:g}", ha="center")
    small(axes, (LEFT + RIGHT) / 2, bottom, "every number between these two", ha="center")


def _decimal(value: float) -> str:
    return f"{value:.0f}" if value < 1e6 else f"{value:.2e}".replace("e+", "e")


def _power(value: float) -> str:
    exponent = math.log2(value)
    return f"$2^{{{exponent:.0f}}}$"
