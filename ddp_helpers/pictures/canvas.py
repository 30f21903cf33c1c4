"""Figures and the few shapes that our pictures share. No pyplot, so no global state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .palette import BOX, FAINT, LINE, PAPER, TEXT, colour, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

OURS = "ddp_helpers"  # marks figures that are flat drawings, so that they can be stored small


def canvas(width: float, height: float, title: str = "") -> tuple[Figure, Axes]:
    """A white page of that size in inches, with one axes measured in inches too; (0, 0) is at the lower left."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=PAPER, dpi=100)
    figure.set_gid(OURS)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    if title:
        write(axes, 0.15, height - 0.15, title, size=13, weight="bold", ha="left", va="top")
    return figure, axes


def write(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    size: float = 10,
    colour: str = TEXT,
    weight: str = "normal",
    ha: str = "center",
    va: str = "center",
    family: str = "sans-serif",
) -> Text:
    return axes.text(x, y, text, fontsize=size, color=colour, fontweight=weight, ha=ha, va=va, family=family)


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    face: str = BOX,
    edge: str = LINE,
    zorder: float = 1,
) -> None:
    """A rounded box with its lower left corner at (x, y). Lines are drawn over it unless its zorder is above 2."""
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, fc=face, ec=edge, lw=1.0, zorder=zorder))


def rank_chip(axes: Axes, rank: int, x: float, y: float, width: float, height: float, text: str) -> Text:
    """A box in the rank's colour, its text in black or white."""
    box(axes, x, y, width, height, face=colour(rank), edge=TEXT, zorder=2.5)
    return write(axes, x + width / 2, y + height / 2, text, colour=ink(rank), weight="bold", size=11)


def small(axes: Axes, x: float, y: float, text: str, ha: str = "center") -> Text:
    return write(axes, x, y, text, size=9, colour=FAINT, ha=ha)
