"""How long each step took: the slow first ones, what disturbs, and what one number makes of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .canvas import OURS
from .message_cost import TIMES, human
from .palette import FAINT, PAPER, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def step_times(seconds: Sequence[Sequence[float]], warm_up: int = 0, title: str = "") -> Figure:
    """Draw the time of every step, a line a rank, with the mean of all steps and the median after the warm-up.

        pictures.step_times([[0.9, 0.1, 0.1, 0.3, 0.1]], warm_up=1)

    seconds  for each rank its steps; all ranks have equally many
    warm_up  the first steps that the median leaves out, shaded
    Both numbers are those of the rank whose median is the largest. Raises ValueError when no step is left.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    counts = {len(steps) for steps in seconds}
    if len(counts) != 1 or not 0 <= warm_up < min(counts):
        raise ValueError(f"the ranks have {sorted(counts)} steps, and {warm_up} of them are warm-up")
    slowest = max(seconds, key=lambda steps: statistics.median(steps[warm_up:]))
    mean, median = statistics.mean(slowest), statistics.median(slowest[warm_up:])
    figure = Figure(figsize=(6.6, 3.0), facecolor=PAPER, dpi=100, layout="constrained")
    figure.set_gid(OURS)
    axes = figure.add_subplot()
    for rank, steps in enumerate(seconds):
        look = {"marker": "os^D"[rank % 4], "color": colour(rank), "ms": 4, "lw": 1}
        axes.plot(steps, label=f"rank {rank}" if len(seconds) > 1 else "a step", **look)
    if warm_up:
        axes.axvspan(-0.5, warm_up - 0.5, color="#EEEEEE", zorder=0, label="warm-up")
    axes.axhline(mean, color=FAINT, ls=":", lw=1.6, label=f"mean of all: {human(mean, TIMES)}")
    axes.axhline(median, color=TEXT, ls="--", lw=1.6, label=f"median after warm-up: {human(median, TIMES)}")
    axes.set(yscale="log", xlabel="step", ylabel="time", xlim=(-0.5, counts.pop() - 0.5))
    if max(map(max, seconds)) < 100 * min(map(min, seconds)):  # powers of ten alone might be one label, or none
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.set_title(title or "the time of each step", loc="left", weight="bold", size=12)
    axes.yaxis.set_major_formatter(lambda value, _: human(value, TIMES))
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8.5, frameon=False)
    return figure
