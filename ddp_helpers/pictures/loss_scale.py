"""The loss scale over the steps of a training, and the steps that were skipped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .canvas import OURS
from .palette import ALARM, PAPER, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CROSS: dict[str, Any] = {"marker": "X", "ms": 9, "color": ALARM, "mec": TEXT}
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)))


def loss_scale(scales: Sequence[float] | Mapping[int, Sequence[float]]) -> Figure:
    """Draw the loss scale of each step; a step that was skipped is crossed.

        pictures.loss_scale([65536.0, 65536.0, 32768.0, 32768.0])

    scales  the scale that each step was made with, and after the last step the one it left; or a dict of such lists,
            one a rank
    A step was skipped if the scale is smaller after it: that is the only thing that makes `GradScaler` lower it.
    Raises ValueError for no scales, or lists of different length.
    """
    from matplotlib.figure import Figure

    by_rank = dict(scales) if isinstance(scales, Mapping) else {0: list(scales)}
    lengths = {len(history) for history in by_rank.values()}
    if not by_rank or min(lengths) < 2:
        raise ValueError("there must be at least two scales: before a step, and after it")
    if len(lengths) > 1:
        raise ValueError(f"the ranks have different numbers of steps: {sorted(lengths)}")
    figure = Figure(figsize=(8.0, 3.2), facecolor=PAPER, dpi=100, layout="constrained")
    figure.set_gid(OURS)
    axes = figure.subplots()
    for place, (rank, history) in enumerate(by_rank.items()):
        _draw(axes, rank, place, history, len(by_rank) > 1)
    if any(map(skipped_steps, by_rank.values())):
        axes.plot([], [], ls="", label="step skipped", **CROSS)
    axes.set_yscale("log", base=2)
    axes.set_xlabel(
        "step" if len(by_rank) == 1 else "step  (equal scales are drawn a little apart)", fontsize=10, color=TEXT
    )
    axes.set_ylabel("loss scale", fontsize=10, color=TEXT)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.18)
    axes.set_title(_title(by_rank), fontsize=12, weight="bold", loc="left", color=TEXT)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9.5)
    return figure


def skipped_steps(history: Sequence[float]) -> list[int]:
    """`skipped_steps([8, 8, 4, 8])` is [1]: the scale fell after step 1."""
    return [step for step, (now, then) in enumerate(pairwise(history)) if then < now]


def _draw(axes: Axes, rank: int, place: int, history: Sequence[float], several: bool) -> None:
    steps = len(history) - 1
    skipped = skipped_steps(history)
    name = f"rank {rank}" if several else "scale"
    # Ranks that agree would hide each other: each is drawn a little higher than the one before.
    lifted = [scale * 2 ** (0.06 * place) for scale in history]
    style = DASHES[place % len(DASHES)]
    axes.step(range(steps + 1), lifted, where="mid", color=colour(rank), lw=2.2, ls=style, label=name, zorder=2)
    axes.plot(
        skipped,
        [lifted[step] for step in skipped],
        ls="",
        zorder=4,
        **CROSS,
    )


def _title(by_rank: Mapping[int, Sequence[float]]) -> str:
    skipped = {rank: len(skipped_steps(history)) for rank, history in by_rank.items()}
    steps = len(next(iter(by_rank.values()))) - 1
    if len(by_rank) > 1:
        ends = {history[-1] for history in by_rank.values()}
        agree = "the ranks agree" if len(ends) == 1 else "the ranks have drifted apart"
        return f"{agree}: skipped " + ", ".join(f"{count} by rank {rank}" for rank, count in skipped.items())
    first, last = (f"$2^{{{math.log2(by_rank[next(iter(by_rank))][end]):g}}}$" for end in (0, -1))
    return f"{skipped[next(iter(by_rank))]} of {steps} steps skipped; the scale went from {first} to {last}"
