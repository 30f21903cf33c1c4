"""What a step consists of on more and more ranks, by the model: compute, hidden and exposed communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..scaling.model import LIMIT, communication, crossover, exposed, largest
from .canvas import OURS
from .message_cost import TIMES, human
from .palette import FAINT, PAPER, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..scaling import Link, Work

COMPUTE, EXPOSED = colour(0), colour(1)


def step_parts(work: Work, link: Link, batch: float, strong: bool = False, title: str = "") -> Figure:
    """Draw the parts of a step against the number of ranks, and mark where communication overtakes compute.

        pictures.step_parts(Work(0.001, 0.0002, 4e6), Link(5e-5, 1e9), batch=32)

    Left the seconds of a step, stacked; right the efficiency. Weak scaling keeps `batch` on each rank, strong scaling
    shares it, and ends where each rank has one sample. The formulas are in ddp_helpers/scaling/model.py, with sources.
    """
    from matplotlib.figure import Figure

    most = largest(batch, strong)
    counts = sorted({*(2**power for power in range(most.bit_length())), most})
    figure = Figure(figsize=(8.4, 3.6), facecolor=PAPER, dpi=100, layout="constrained")
    figure.set_gid(OURS)
    left, right = figure.subplots(1, 2)
    found = crossover(work, link, batch, strong)
    _draw_parts(left, work, link, batch, strong, counts)
    _draw_share(right, work, link, batch, strong, counts)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set(xlabel="ranks", xlim=(1, LIMIT))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.spines[["top", "right"]].set_visible(False)
        if found:
            axes.axvline(found, color=TEXT, ls=":", lw=1.6)
    kind = "strong" if strong else "weak"
    until = f"up to {most} ranks" + (", one sample each" if strong and most == batch else "")
    longer = f"takes longer than compute from {found} ranks on" if found else f"stays below compute {until}"
    figure.suptitle(
        title or f"{kind} scaling: communication {longer}",
        x=0.01, ha="left", weight="bold", size=12,
    )  # fmt: skip
    figure.legend(loc="outside lower left", ncols=3, fontsize=8.5, frameon=False)
    return figure


def _draw_parts(axes: Axes, work: Work, link: Link, batch: float, strong: bool, counts: list[int]) -> None:
    each = [batch / n if strong else batch for n in counts]
    compute = [work.compute(one) for one in each]
    open_ = [exposed(work, link, n, one) for n, one in zip(counts, each, strict=True)]
    hidden = [communication(link, n, work.size) - seen for n, seen in zip(counts, open_, strict=True)]
    axes.stackplot(counts, compute, open_, colors=[COMPUTE, EXPOSED], labels=["compute", "communication, exposed"])
    if any(value > 0 for value in hidden):
        # What is hidden takes no time of its own: it is drawn inside compute.
        bottom = [whole - part for whole, part in zip(compute, hidden, strict=True)]
        look = {"facecolor": COMPUTE, "edgecolor": PAPER, "hatch": "//", "lw": 0}
        axes.fill_between(counts, bottom, compute, label="compute that hides communication", **look)
    if strong:
        axes.axhline(work.compute(batch), color=TEXT, ls="--", lw=1.2, label="a step of one rank")
    axes.set(ylim=(0, None), ylabel="time of a step")
    axes.yaxis.set_major_formatter(lambda value, _: human(value, TIMES) if value else "0")


def _draw_share(axes: Axes, work: Work, link: Link, batch: float, strong: bool, counts: list[int]) -> None:
    from ..scaling.model import efficiency

    shares = [100 * efficiency(work, link, n, batch, strong) for n in counts]
    axes.axhline(100, color=FAINT, ls="--", lw=1.2)
    axes.plot(counts, shares, "o-", color=colour(2), lw=2, ms=4)
    axes.set(ylim=(0, 110), ylabel="efficiency, % of the ideal")
