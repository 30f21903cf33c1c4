"""One epoch on one process and on several ranks: which steps it is cut into, and what changes with that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .canvas import canvas, small, write
from .palette import FAINT, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, LEFT, RIGHT, LANES = 8.0, 1.05, 0.25, 2.4  # inches; the lanes share the height LANES
KEEP = ("the batch of each rank", "the global batch")
ONE_BY_ONE = 40  # up to so many steps have a gap between them


@dataclass(frozen=True)
class Epoch:
    """One pass of `ranks` ranks over `samples` samples, `batch` for each rank and step.

    Dealt as DistributedSampler deals: every rank gets equally many, and where they do not divide, some come twice.
    """

    samples: int
    ranks: int
    batch: int

    @property
    def each(self) -> int:
        """Samples of one rank."""
        return -(-self.samples // self.ranks)

    @property
    def repeats(self) -> int:
        """How many samples are dealt a second time, so that all ranks have equally many."""
        return self.each * self.ranks - self.samples

    @property
    def steps(self) -> int:
        """Optimizer steps; the last may be a smaller one."""
        return -(-self.each // self.batch)

    @property
    def global_batch(self) -> int:
        """Samples of a full step, over all ranks."""
        return min(self.batch, self.each) * self.ranks

    def step_sizes(self) -> list[int]:
        """Samples of one rank in each step."""
        return [min(self.batch, self.each - step * self.batch) for step in range(self.steps)]


def epochs(samples: int, ranks: int, batch: int, keep: str = KEEP[0]) -> tuple[Epoch, Epoch]:
    """The epoch of one process with this batch, and that of the ranks, which keep one of KEEP.

    Raises ValueError for an unknown `keep`, and when a global batch has not one sample for each rank.
    """
    if keep not in KEEP:
        raise ValueError(f"keep={keep!r} is none of {KEEP}")
    if keep == KEEP[0]:
        return Epoch(samples, 1, batch), Epoch(samples, ranks, batch)
    if batch < ranks:
        raise ValueError(f"A global batch of {batch} has not one sample for each of {ranks} ranks.")
    return Epoch(samples, 1, batch), Epoch(samples, ranks, batch // ranks)


def batch_arithmetic(
    samples: int = 64, ranks: int = 4, batch: int = 8, keep: str = KEEP[0], lr: float | None = None
) -> Figure:
    """Draw one epoch: a column a step, its height the samples of that step, a row a rank.

        pictures.batch_arithmetic(samples=64, ranks=4, batch=8)

    Above one process with `batch` samples a step, below `ranks` ranks that keep "the batch of each rank" or "the
    global batch". With `lr`, the learning rate of the one process, that of the rule of thumb stands beside each lane.
    Both lanes have one scale, so that equal areas are equal numbers of samples. Raises ValueError as `epochs` does.
    Source of the dealing: torch.utils.data.DistributedSampler.
    """
    lanes = epochs(samples, ranks, batch, keep)
    figure, axes = canvas(WIDTH, LANES + 2.3, _title(*lanes))
    across = (WIDTH - LEFT - RIGHT) / max(epoch.steps for epoch in lanes)
    up = LANES / sum(epoch.global_batch for epoch in lanes)
    y = LANES + 1.3
    for epoch in lanes:
        y -= epoch.global_batch * up
        _draw_lane(axes, epoch, y, across, up)
        if lr is not None:
            _write_lr(axes, lr, epoch.global_batch / lanes[0].global_batch, y + epoch.global_batch * up + 0.14)
        y -= 0.65
    axes.annotate("", (WIDTH - RIGHT, 0.48), (LEFT, 0.48), arrowprops={"arrowstyle": "->", "color": FAINT, "lw": 1.0})
    write(axes, LEFT - 0.1, 0.48, "steps", ha="right", size=10, colour=FAINT)
    note = "one column a step; equal areas are equal numbers of samples"
    twice = "; dealt twice to come out even (lesson 05)" if lanes[1].repeats else ""
    small(axes, LEFT, 0.15, note + twice, ha="left")
    return figure


def _title(alone: Epoch, together: Epoch) -> str:
    if together.ranks == 1:
        return f"one process: {_steps(alone.steps)} an epoch"
    if alone.steps == together.steps:
        return f"{together.ranks} ranks take as many steps an epoch as one process: {alone.steps}"
    return f"{together.ranks} ranks take {_steps(together.steps)} an epoch, one process takes {alone.steps}"


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def _write_lr(axes: Axes, lr: float, factor: float, y: float) -> None:
    text = f"lr {lr:.2g}" if factor == 1 else f"rule of thumb: lr {lr * factor:.2g}"
    write(axes, WIDTH - RIGHT, y, text, ha="right", size=10)


def _samples(count: int) -> str:
    return f"{count} sample{'s' * (count != 1)}"


def _draw_lane(axes: Axes, epoch: Epoch, bottom: float, across: float, up: float) -> None:
    sizes = epoch.step_sizes()
    row = min(epoch.batch, epoch.each) * up
    gap = min(0.05, 0.2 * across) if epoch.steps <= ONE_BY_ONE else -0.02 * across
    top = bottom + epoch.global_batch * up
    for rank in range(epoch.ranks):
        y = top - (rank + 1) * row
        for height in sorted(set(sizes), reverse=True):
            bars = [(LEFT + step * across, across - gap) for step, size in enumerate(sizes) if size == height]
            tall = height * up - min(0.02, 0.1 * row)
            axes.broken_barh(bars, (y, tall), fc=colour(rank), ec="none", gid=f"rank {rank}")
        if row >= 0.13:
            write(axes, LEFT - 0.1, y + row / 2, f"rank {rank}", ha="right", size=min(10, 60 * row))
    if row < 0.13:
        write(axes, LEFT - 0.1, bottom + epoch.ranks * row / 2, _all_ranks(epoch.ranks), ha="right")
    write(axes, LEFT, top + 0.14, _caption(epoch), ha="left", size=10, colour=TEXT)


def _all_ranks(count: int) -> str:
    return f"ranks 0–{count - 1}" if count > 1 else "rank 0"


def _caption(epoch: Epoch) -> str:
    last = epoch.step_sizes()[-1] * epoch.ranks
    rest = f", the last of {last}" if last != epoch.global_batch else ""
    if epoch.ranks == 1:
        return f"one process: {_steps(epoch.steps)} of {epoch.global_batch}{rest}"
    twice = f"; {_samples(epoch.repeats)} dealt twice" if epoch.repeats else ""
    each = min(epoch.batch, epoch.each)
    return f"{epoch.ranks} ranks: {_steps(epoch.steps)} of {epoch.ranks} × {each} = {epoch.global_batch}{rest}{twice}"
