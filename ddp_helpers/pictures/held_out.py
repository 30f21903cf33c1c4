"""Published speeds on many GPUs, and what the model predicts for them from the first few."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .canvas import OURS
from .palette import FAINT, PAPER, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..scaling import Check, Series


def held_out(checks: Sequence[tuple[Series, Sequence[Check]]]) -> Figure:
    """Draw a panel for each series: the time of a step against GPUs, the rows fitted, the rows predicted, the errors.

        rows = scaling.read_rows("../data/published_figures.csv", "scaling_amp")
        pictures.held_out([(scaling.series(rows), scaling.held_out(scaling.series(rows), until=8))])

    A step's time is relative to the first row's: a flat line is perfect scaling. The band reaches from "all that was
    lost are bytes" to "all of it is latency": two extremes, no confidence band. The number beside a predicted row is
    the error of the prediction; a row whose note says that the workload changed is drawn hollow.
    """
    from matplotlib.figure import Figure

    columns = min(2, len(checks))
    rows = -(-len(checks) // columns)
    figure = Figure(figsize=(3.8 * columns, 2.5 * rows + 0.35), facecolor=PAPER, dpi=100, layout="constrained")
    figure.set_gid(OURS)
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes, (series, found) in zip(panels, checks, strict=False):
        _draw(axes, series, found)
    for axes in list(figure.axes)[len(checks) :]:
        axes.set_axis_off()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return figure


def _draw(axes: Axes, series: Series, checks: Sequence[Check]) -> None:
    gpus = [check.gpus for check in checks]
    low, high = [c.low for c in checks], [c.high for c in checks]
    axes.fill_between(gpus, low, high, color=colour(0), alpha=0.2, lw=0, label="all bytes … all latency")
    axes.plot(gpus, [c.predicted for c in checks], color=colour(0), lw=2, label="the model")
    for fitted, label, face in ((True, "published, fitted", colour(2)), (False, "published, predicted", colour(1))):
        part = [c for c in checks if c.fitted == fitted]
        solid = [c for c in part if not c.note]
        axes.plot([c.gpus for c in solid], [c.measured for c in solid], "o", color=face, mec=TEXT, ms=7, label=label)
        hollow = [c for c in part if c.note]
        axes.plot([c.gpus for c in hollow], [c.measured for c in hollow], "o", mfc=PAPER, mec=TEXT, ms=7)
        for c in [] if fitted else part:
            text = f"{c.error_percent:+.0f}%"
            axes.annotate(text, (c.gpus, c.measured), (-7, 5), textcoords="offset points", ha="right", size=9)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="GPUs", ylabel="time of a step", ylim=(0, 1.15 * max(*high, *(c.measured for c in checks))))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axhline(1, color=FAINT, ls="--", lw=1)
    title = "\n".join(textwrap.wrap(series.name, 50))
    axes.set_title("\n".join([title, *textwrap.wrap(f"source: {series.source}", 50)]), loc="left", size=9)
    axes.spines[["top", "right"]].set_visible(False)
