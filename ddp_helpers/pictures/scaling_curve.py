"""Speed-up against the number of ranks: measured, predicted with its uncertainty, and the ideal line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .canvas import OURS
from .palette import FAINT, PAPER, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..scaling import Range

MARKERS = "osD^"


def scaling_curve(
    measured: Mapping[str, Mapping[int, float]],
    predicted: Mapping[str, Mapping[int, Range]] | None = None,
    title: str = "speed-up: samples a second, against one process",
) -> Figure:
    """Draw speed-up against ranks, both axes logarithmic: a straight dashed line is the ideal.

        pictures.scaling_curve({"weak": {1: 1.0, 2: 1.7}}, {"weak": {2: Range(1.8, 1.6, 1.9)}})

    measured   name → number of ranks → speed-up: points
    predicted  name → number of ranks → scaling.Range: a line in a band; a name that is measured too has its colour
    """
    from matplotlib.figure import Figure

    predicted = predicted or {}
    names = list(dict.fromkeys([*measured, *predicted]))
    counts = sorted({n for curve in [*measured.values(), *predicted.values()] for n in curve} | {1})
    figure = Figure(figsize=(6.4, 3.6), facecolor=PAPER, dpi=100, layout="constrained")
    figure.set_gid(OURS)
    axes = figure.add_subplot()
    axes.plot([1, counts[-1]], [1, counts[-1]], "--", color=FAINT, lw=1.4, label="ideal")
    for number, name in enumerate(names):
        if name in predicted:
            _draw_band(axes, predicted[name], name, number)
        if name in measured:
            points = sorted(measured[name].items())
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(
                *zip(*points, strict=True), marker, color=colour(number), mec=TEXT, ms=8, label=f"{name}, measured"
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xlabel="ranks", ylabel="times as fast as one process")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:.0f}")
    axes.set_title(title, loc="left", weight="bold", size=12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", fontsize=9, frameon=True)
    return figure


def _draw_band(axes: Axes, curve: Mapping[int, Range], name: str, number: int) -> None:
    counts = sorted(curve)
    low, value, high = ([getattr(curve[n], field) for n in counts] for field in ("low", "value", "high"))
    axes.fill_between(counts, low, high, color=colour(number), alpha=0.25, lw=0)
    style = "-" if number % 2 == 0 else "-."
    axes.plot(counts, value, style, color=colour(number), lw=2, label=f"{name}, predicted")
