"""Which rank made which step in which attempt, when a job was started anew from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .canvas import canvas, rank_chip, small, write
from .palette import ALARM, LINE, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..result import Run

LEFT, ROW, GAP, STEP = 1.75, 0.42, 0.3, 0.5
MAX_WIDTH = 9.5

Place = tuple[int, int]  # epoch, step


@dataclass(frozen=True)
class Attempt:
    """What each rank did between a start and its end."""

    steps: dict[int, list[Place]]
    killed: set[int] = field(default_factory=set)

    @property
    def places(self) -> set[Place]:
        return {place for done in self.steps.values() for place in done}


def restarts(lines: Run | Iterable[Mapping[str, float]]) -> Figure:
    """Draw the steps of each rank, attempt below attempt; steps that were done again are hatched.

        pictures.restarts(run)  # the script prints attempt=… at its start, epoch=… step=… after each step

    lines  a run, or its metrics
    A step counts as made again if a later attempt made it too. A cross stands where a rank printed killed=1. Raises
    ValueError where no steps were printed.
    """
    metrics: Any = getattr(lines, "metrics", lines)
    attempts = read_attempts(metrics)
    places = sorted({place for attempt in attempts for place in attempt.places})
    if not places:
        raise ValueError("no line has the words epoch=… and step=…")
    ranks = sorted({rank for attempt in attempts for rank in attempt.steps})
    step = min(STEP, (MAX_WIDTH - LEFT - 0.3) / len(places))
    block = len(ranks) * ROW + GAP
    height = 0.95 + len(attempts) * block
    figure, axes = canvas(max(LEFT + 0.3 + step * len(places), 6.0), height, _title(attempts))
    _epochs(axes, places, step, height)
    for number, attempt in enumerate(attempts):
        again = set().union(*(later.places for later in attempts[number + 1 :]))
        top = height - 0.95 - number * block
        write(axes, 0.15, top - len(ranks) * ROW / 2, f"attempt {number}", ha="left", weight="bold")
        for row, rank in enumerate(ranks):
            _row(axes, top - (row + 1) * ROW, step, places, rank, attempt, again)
    return figure


def read_attempts(metrics: Iterable[Mapping[str, float]]) -> list[Attempt]:
    """The steps of each attempt, from the printed lines; a rank's attempt is the last one that it printed."""
    now: dict[int, int] = {}
    attempts: list[Attempt] = []
    for line in metrics:
        rank = int(line["rank"])
        if "attempt" in line:
            now[rank] = int(line["attempt"])
        number = now.get(rank, 0)
        while len(attempts) <= number:
            attempts.append(Attempt({}))
        if "killed" in line:
            attempts[number].killed.add(rank)
        if "epoch" in line and "step" in line:
            attempts[number].steps.setdefault(rank, []).append((int(line["epoch"]), int(line["step"])))
    return attempts


def _epochs(axes: Axes, places: list[Place], step: float, height: float) -> None:
    """The epochs' names over their steps, and a line where one begins."""
    for epoch in sorted({epoch for epoch, _ in places}):
        columns = [index for index, place in enumerate(places) if place[0] == epoch]
        left, right = LEFT + columns[0] * step, LEFT + (columns[-1] + 1) * step
        small(axes, (left + right) / 2, height - 0.75, f"epoch {epoch}")
        axes.plot([left, left], [0.25, height - 0.65], color=LINE, lw=1, ls=":", zorder=0)


def _row(
    axes: Axes, y: float, step: float, places: list[Place], rank: int, attempt: Attempt, again: set[Place]
) -> None:
    """One rank's steps in one attempt, and its end."""
    rank_chip(axes, rank, 1.05, y + 0.06, 0.6, ROW - 0.12, str(rank))
    done = attempt.steps.get(rank, [])
    for place in done:
        _cell(axes, LEFT + places.index(place) * step, y, step, rank, place in again)
    if rank in attempt.killed:
        x = LEFT + (places.index(done[-1]) + 1.5 if done else 0.5) * step
        axes.plot([x], [y + ROW / 2], marker="X", ms=11, color=ALARM, mec=TEXT)


def _cell(axes: Axes, x: float, y: float, width: float, rank: int, again: bool) -> None:
    from matplotlib.patches import Rectangle

    looks: dict[str, Any] = {"fc": "none" if again else colour(rank), "ec": colour(rank) if again else TEXT}
    hatch = "////" if again else None
    axes.add_patch(Rectangle((x + 0.03, y + 0.06), width - 0.06, ROW - 0.12, hatch=hatch, lw=0.8, **looks))


def _title(attempts: list[Attempt]) -> str:
    again = sum(
        len(attempt.places & set().union(*(later.places for later in attempts[number + 1 :])))
        for number, attempt in enumerate(attempts)
    )
    return f"{len(attempts)} attempt{'s' * (len(attempts) != 1)}, {again} step{'s' * (again != 1)} made again (hatched)"
