"""Which sample is read by which rank, in which step, in which epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from .canvas import canvas, rank_chip, small, write
from .palette import ALARM, BOX, LINE, PAPER, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..result import Run

MARGIN, CELL, ROW, STEP_GAP = 0.3, 0.36, 0.42, 0.12
CHIP, PANEL_GAP, HEAD = 0.8, 0.45, 0.75
HATCH = "#F2C9AE"  # pale, so that the number on it stays readable
STROKE = "#F0A070"
WIDEST = 10.0  # inches of a page
MOST_COLUMNS, MOST_RANKS, MOST_EPOCHS, MOST_DROPPED = 22, 8, 6, 12

Batches = list[list[int]]
Corner = tuple[float, float]


@dataclass(frozen=True)
class Epoch:
    """One epoch. `again` has (rank, step, place) of every reading of a sample that had been read before in it.

    Before: in an earlier place of any rank's list, or in the same place by a smaller rank; the order in which
    DistributedSampler deals.
    """

    ranks: list[Batches]
    again: set[tuple[int, int, int]]
    dropped: list[int]


def sampler_map(
    run_or_arrays: Run | Sequence[Sequence[Any]],
    *,
    batch_size: int | None = None,
    size: int | None = None,
    first_epoch: int = 0,
) -> Figure:
    """Draw who reads which sample: a panel an epoch, in it a row a rank and a square a sample, from left to right.

        pictures.sampler_map([[[0, 4, 8]], [[1, 5, 9]], [[2, 6, 0]], [[3, 7, 1]]])

    run_or_arrays  a Run whose ranks returned `seen` (``--return seen``), or the same as lists: for each rank, for each
                   epoch, the numbers of its samples in the order of reading; or its batches, each a list of numbers
    batch_size     samples a step, where the numbers do not come in batches
    size           samples in the dataset, to show which were never read (by default the largest number read, plus 1)
    first_epoch    the number of the first epoch that is given

    A sample that was read before in the epoch is hatched, in a thick frame, and starred; samples that nobody read
    stand crossed out below. At most 8 ranks, 6 epochs and 22 samples of a rank are drawn; what is left out is said.
    Raises ValueError when there is nothing to draw or the ranks were in different epochs.
    """
    epochs = read_epochs(_plain(run_or_arrays), batch_size, size)
    width = max(_panel_width(epoch) for epoch in epochs)
    drawn = epochs[:MOST_EPOCHS]
    across = max(1, min(len(drawn), int((WIDEST - 2 * MARGIN + PANEL_GAP) / (width + PANEL_GAP))))
    down = -(-len(drawn) // across)
    foot = 0.48 if any(epoch.dropped for epoch in drawn) else 0.1
    height = HEAD + min(len(drawn[0].ranks), MOST_RANKS) * ROW + foot
    title = _title(epochs)
    page = max(5.6, 0.3 + 0.106 * len(title), 2 * MARGIN + across * width + (across - 1) * PANEL_GAP)
    notes = [line for note in _notes(epochs) for line in wrap(note, int((page - 2 * MARGIN) / 0.078))]
    below = 0.15 + 0.22 * len(notes)
    top = 0.55 + down * height
    figure, axes = canvas(page, top + below, title)
    for number, epoch in enumerate(drawn):
        row, column = divmod(number, across)
        x, y = MARGIN + column * (width + PANEL_GAP), below + top - 0.55 - row * height
        _draw_epoch(axes, epoch, first_epoch + number, x, y)
    for line, note in enumerate(notes):
        small(axes, MARGIN, below - 0.15 - 0.22 * line, note, ha="left")
    return figure


def read_epochs(arrays: list[list[Any]], batch_size: int | None, size: int | None) -> list[Epoch]:
    """Sort what the ranks read by epoch, and find what was read twice and what by nobody."""
    if not arrays or not arrays[0]:
        raise ValueError("nobody read anything, so there is nothing to draw")
    if len({len(of_rank) for of_rank in arrays}) > 1:
        counts = ", ".join(str(len(of_rank)) for of_rank in arrays)
        raise ValueError(f"the ranks have lists for different numbers of epochs: {counts}")
    cut = [[_batches(epoch, batch_size) for epoch in of_rank] for of_rank in arrays]
    numbers = [number for of_rank in cut for epoch in of_rank for batch in epoch for number in batch]
    count = size if size is not None else max(numbers, default=-1) + 1
    return [_epoch([of_rank[index] for of_rank in cut], count) for index in range(len(cut[0]))]


def _epoch(ranks: list[Batches], size: int) -> Epoch:
    readings = []
    for rank, batches in enumerate(ranks):
        places = [(step, place) for step, batch in enumerate(batches) for place in range(len(batch))]
        readings += [(order, rank, step, place) for order, (step, place) in enumerate(places)]
    known: set[int] = set()
    again = set()
    for _, rank, step, place in sorted(readings):
        number = ranks[rank][step][place]
        if number in known:
            again.add((rank, step, place))
        known.add(number)
    return Epoch(ranks, again, [number for number in range(size) if number not in known])


def _plain(run_or_arrays: Run | Sequence[Sequence[Any]]) -> list[list[Any]]:
    if isinstance(run_or_arrays, Sequence):
        return [list(of_rank) for of_rank in run_or_arrays]
    returned = [rank.returned for rank in run_or_arrays.ranks]
    missing = [number for number, values in enumerate(returned) if "seen" not in values]
    if missing:
        raise ValueError(f"rank {missing[0]} returned no `seen`: run the script with --return seen")
    return [list(values["seen"]) for values in returned]


def _batches(epoch: Sequence[Any], batch_size: int | None) -> Batches:
    if epoch and isinstance(epoch[0], Sequence):
        return [[int(number) for number in batch] for batch in epoch]
    numbers = [int(number) for number in epoch]
    step = batch_size or 1
    return [numbers[start : start + step] for start in range(0, len(numbers), step)]


# ---- drawing --------------------------------------------------------------------------------------------------------


def _columns(epoch: Epoch) -> list[list[float]]:
    """The left edge of each place of each step, from the left edge of the first; at most MOST_COLUMNS places."""
    steps = max(len(batches) for batches in epoch.ranks)
    edges: list[list[float]] = []
    x, left = 0.0, MOST_COLUMNS
    for step in range(steps):
        places = min(left, max(len(batches[step]) for batches in epoch.ranks if step < len(batches)))
        if places:
            edges.append([x + place * CELL for place in range(places)])
        x += places * CELL + STEP_GAP
        left -= places
    return edges


def _panel_width(epoch: Epoch) -> float:
    edges = _columns(epoch)
    grid = edges[-1][-1] + CELL if edges else 0.0
    dropped = 0.95 + CELL * min(len(epoch.dropped), MOST_DROPPED) if epoch.dropped else 0.0
    return max(CHIP + 0.1 + grid, dropped, 1.9)


def _draw_epoch(axes: Axes, epoch: Epoch, number: int, x: float, top: float) -> None:
    write(axes, x, top - 0.12, f"epoch {number}", size=11, weight="bold", ha="left")
    edges = _columns(epoch)
    left = x + CHIP + 0.1
    _draw_steps(axes, edges, left, top - 0.5)
    squares: dict[bool, list[Corner]] = {False: [], True: []}  # by: was it read before?
    for rank, batches in enumerate(epoch.ranks[:MOST_RANKS]):
        y = top - HEAD - (rank + 1) * ROW + 0.06
        rank_chip(axes, rank, x, y, CHIP, CELL, f"rank {rank}")
        for step, places in enumerate(edges[: len(batches)]):
            for place, edge in enumerate(places[: len(batches[step])]):
                again = (rank, step, place) in epoch.again
                squares[again].append((left + edge, y))
                _write_number(axes, batches[step][place], left + edge, y, again)
    _draw_squares(axes, squares[False], fc=BOX, ec=LINE, lw=0.8, zorder=2)
    # The colour of a hatch is that of the edge, so the frame is drawn once more.
    _draw_squares(axes, squares[True], fc=PAPER, ec=HATCH, lw=0.5, hatch="////", zorder=2)
    _draw_squares(axes, squares[True], fc="none", ec=ALARM, lw=2.0, zorder=3)
    if epoch.dropped:
        _draw_dropped(axes, epoch.dropped, x, top - HEAD - min(len(epoch.ranks), MOST_RANKS) * ROW - 0.36)


def _draw_steps(axes: Axes, edges: list[list[float]], left: float, y: float) -> None:
    if not edges:
        return
    wide = len(edges[0]) > 1  # is there room for the word above each step?
    if not wide:
        small(axes, left, y + 0.16, "step", ha="left")
    for step, places in enumerate(edges):
        first, last = left + places[0], left + places[-1] + CELL
        axes.plot([first + 0.03, last - 0.03], [y - 0.14] * 2, color=LINE, lw=1.2)
        small(axes, (first + last) / 2, y - 0.02, f"step {step}" if wide and len(places) > 1 else str(step))


def _draw_squares(axes: Axes, corners: list[Corner], **look: Any) -> None:
    """All squares of one look at once: a hundred patches would take longer than a slider may."""
    from matplotlib.collections import PolyCollection

    if corners:
        near, far = 0.02, CELL - 0.02
        around = ((near, near), (far, near), (far, far), (near, far))
        outlines = [[(x + dx, y + dy) for dx, dy in around] for x, y in corners]
        axes.add_collection(PolyCollection(outlines, **look), autolim=False)


def _write_number(axes: Axes, number: int, x: float, y: float, again: bool) -> None:
    weight = "bold" if again else "normal"
    shown = f"{number}*" if again else str(number)
    write(axes, x + CELL / 2, y + CELL / 2, shown, size=_size(number, again), weight=weight).set_zorder(4)


def _size(number: int, again: bool) -> float:
    return 10 if len(str(number)) + again < 3 else 8 if len(str(number)) + again < 4 else 6.5


def _draw_dropped(axes: Axes, dropped: list[int], x: float, y: float) -> None:
    small(axes, x, y + CELL / 2, "not read:", ha="left")
    corners = [(x + 0.75 + place * CELL, y) for place in range(min(len(dropped), MOST_DROPPED))]
    _draw_squares(axes, corners, fc=PAPER, ec=TEXT, lw=1.0, ls=(0, (2, 2)), zorder=2)
    for (left, _), number in zip(corners, dropped, strict=False):
        axes.plot([left + 0.04, left + CELL - 0.04], [y + 0.04, y + CELL - 0.04], color=STROKE, lw=2.0, zorder=3)
        write(axes, left + CELL / 2, y + CELL / 2, str(number), size=_size(number, False)).set_zorder(4)


def _notes(epochs: list[Epoch]) -> list[str]:
    """What the marks mean, and what the page has no room for."""
    marks = ["a square is a sample, its number inside"]
    if any(epoch.again for epoch in epochs):
        marks.append("hatched, *: read before in this epoch")
    if any(epoch.dropped for epoch in epochs):
        marks.append("struck through: read by nobody")
    ranks = epochs[0].ranks
    longest = max(sum(map(len, batches)) for epoch in epochs for batches in epoch.ranks)
    limits = [
        (len(epochs), MOST_EPOCHS, "epochs"),
        (len(ranks), MOST_RANKS, "ranks"),
        (longest, MOST_COLUMNS, "samples of a rank"),
        (max(len(epoch.dropped) for epoch in epochs), MOST_DROPPED, "samples that nobody read"),
    ]
    parts = [f"{most} of {there} {what}" for there, most, what in limits if there > most]
    return [" · ".join(marks), *([f"drawn are the first {', '.join(parts)}"] if parts else [])]


def _title(epochs: list[Epoch]) -> str:
    world = len(epochs[0].ranks)
    who = f"{world} rank{'s' if world > 1 else ''}"
    again = _range(len(epoch.again) for epoch in epochs)
    dropped = _range(len(epoch.dropped) for epoch in epochs)
    parts = [f"{again} read again" if again != "0" else "", f"{dropped} not read" if dropped != "0" else ""]
    found = ", ".join(filter(None, parts)) or "each sample read once"
    if len(epochs) == 1:
        return f"{who}: {found}"
    alike = all(epoch == epochs[0] for epoch in epochs)
    return f"{who}: {found}{', every epoch the same' if alike else ' in each epoch'}"


def _range(counts: Any) -> str:
    found = sorted(set(counts))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
