"""One training step on several devices: who computes, who waits, and what moves when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .canvas import canvas, small, write
from .palette import FAINT, LINE, PAPER, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Recorded = tuple[int, float, float, str, int]

WIDTH, LEFT, RIGHT = 9.0, 1.15, 7.75  # inches; between LEFT and RIGHT runs the time
LANE, COMPUTE, TRANSFER = 1.25, 0.36, 0.22  # heights of a lane, and of the two kinds of bars in it
WAIT = "wait"
GAP = 0.5  # the shortest gap in a lane that is labelled
THINNEST = 0.03  # of a bar: a copy of a microsecond is still seen
APART = 0.24  # of two numbers
ROW, COLUMN = 0.26, 4.2  # of the legend


@dataclass(frozen=True)
class Event:
    """What one device did from `start` to `end` (seconds); `moved` bytes came from another device or went there."""

    lane: int
    start: float
    end: float
    kind: str
    moved: int


def parallel_step(events: Iterable[Recorded], title: str, lanes: str = "GPU") -> Figure:
    """Draw one recorded step: a lane for each device, numbered bars, and below what the numbers mean.

        pictures.parallel_step([(0, 0.0, 0.2, "scatter", 4096), (0, 0.2, 1.0, "forward", 0),
                                (1, 0.2, 1.1, "forward", 0)], "two devices")

    events  tuples (lane, start, end, kind, bytes): seconds on one clock for all lanes, and the bytes that moved
            between devices. What moves bytes is drawn hatched, below what computes; the kind "wait" is drawn empty.
            A long gap in a lane is labelled "waits".
    title   what was recorded
    lanes   the word for a lane: "GPU", "rank"; or its label, with {0} for its number: "thread {0},\\nas GPU {0}"
    A kind has one number wherever it happens, in the order of first starts. Raises ValueError without events.
    """
    recorded = sorted((Event(*event) for event in events), key=lambda event: event.start)
    if not recorded:
        raise ValueError("no events were recorded, so there is nothing to draw")
    begin, length = recorded[0].start, max(event.end for event in recorded) - recorded[0].start
    scale = (RIGHT - LEFT) / (length or 1.0)
    names = sorted({event.lane for event in recorded})
    kinds = list(dict.fromkeys(event.kind for event in recorded))
    below = 0.35 + ROW * -(-len(kinds) // 2)
    figure, axes = canvas(WIDTH, 0.95 + LANE * len(names) + below, title)
    top = 0.2 + LANE * len(names) + below
    small(axes, 0.15, top + 0.22, _summary(recorded, length), ha="left")
    for row, lane in enumerate(names):
        mine = [event for event in recorded if event.lane == lane]
        _draw_lane(axes, lane, lanes, mine, top - row * LANE, share=computing(mine) / (length or 1.0))
        for start, end in gaps(mine, begin, begin + length):
            if (end - start) * scale >= GAP:
                small(axes, LEFT + ((start + end) / 2 - begin) * scale, top - (row + 0.5) * LANE + 0.2, "waits")
        _draw_bars(axes, mine, [LEFT + (event.start - begin) * scale for event in mine], scale, top - row * LANE, kinds)
    _draw_legend(axes, recorded, kinds, below - 0.12)
    return figure


def computing(events: list[Event]) -> float:
    """Seconds in which at least one of these events computes, which is: moves no bytes and does not wait."""
    total, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.start):
        if not event.moved and event.kind != WAIT and event.end > until:
            total += event.end - max(event.start, until)
            until = event.end
    return total


def gaps(events: list[Event], begin: float, end: float) -> list[tuple[float, float]]:
    """The times from `begin` to `end`, as (start, end), in which none of these events runs."""
    found, until = [], begin
    for event in sorted(events, key=lambda event: event.start):
        if event.start > until:
            found.append((until, event.start))
        until = max(until, event.end)
    return [*found, (until, end)] if end > until else found


def in_bytes(count: float) -> str:
    """`in_bytes(2_300_000)` is "2.3 MB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _summary(events: list[Event], length: float) -> str:
    moved = sum(event.moved for event in events)
    return f"one step: {length * 1e3:.1f} ms, {in_bytes(moved)} moved; hatched: between devices"


def _draw_lane(axes: Axes, lane: int, word: str, events: list[Event], top: float, share: float) -> None:
    middle = top - LANE / 2
    axes.plot([LEFT, RIGHT], [middle, middle], color=LINE, lw=0.8, zorder=1)
    label = word.format(lane) if "{0}" in word else f"{word} {lane}"
    write(axes, 0.15, middle, label, weight="bold", size=11, ha="left")
    small(axes, RIGHT + 0.15, middle, f"computes {share:.0%}", ha="left")


def _draw_bars(axes: Axes, events: list[Event], lefts: list[float], scale: float, top: float, kinds: list[str]) -> None:
    middle = top - LANE / 2
    for moves in (False, True):
        drawn = [(event, left) for event, left in zip(events, lefts, strict=True) if (event.moved > 0) is moves]
        rows = stack([event for event, _ in drawn])
        height = (TRANSFER if moves else COMPUTE) / (max(rows, default=0) + 1)
        beyond = middle - 0.18 - TRANSFER if moves else middle + 0.18 + COMPUTE
        marks: list[tuple[float, float, int]] = []
        for (event, left), row in zip(drawn, rows, strict=True):
            width = max((event.end - event.start) * scale, THINNEST)
            bottom = middle - 0.02 - (row + 1) * height if moves else middle + 0.02 + row * height
            _draw_bar(axes, event, left, bottom, width, height)
            marks.append((left + width / 2, bottom if moves else bottom + height, kinds.index(event.kind) + 1))
        _draw_numbers(axes, marks, beyond)


def _draw_bar(axes: Axes, event: Event, left: float, bottom: float, width: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    plain = event.moved > 0 or event.kind == WAIT
    hatch, dashes = "/////" if event.moved else None, (0, (2, 2)) if event.kind == WAIT else "-"
    face = PAPER if plain else colour(event.lane)
    axes.add_patch(Rectangle((left, bottom), width, height, fc=face, ec=TEXT, lw=0.8, ls=dashes, hatch=hatch, zorder=2))


def stack(events: list[Event]) -> list[int]:
    """A row for each event, in the order of starts, so that none in a row overlaps another; as few rows as can be."""
    ends: list[float] = []
    rows = []
    for event in events:
        row = next((row for row, end in enumerate(ends) if end <= event.start), len(ends))
        ends[row : row + 1] = [event.end]
        rows.append(row)
    return rows


def _draw_numbers(axes: Axes, marks: list[tuple[float, float, int]], y: float) -> None:
    """A number for each (middle of a bar, its edge, number), beyond the bars, and a line from the edge towards it."""
    for (centre, edge, number), x in zip(marks, spread([mark[0] for mark in marks], APART, RIGHT + 0.1), strict=True):
        near = y + (0.08 if edge > y else -0.08)
        axes.plot([centre, x], [edge, near], color=LINE, lw=0.7, zorder=1.5)
        write(axes, x, y, str(number), size=9, weight="bold")


def spread(wanted: list[float], apart: float, last: float) -> list[float]:
    """Positions in the given order, near the wanted ones, at least `apart` from each other and none behind `last`."""
    placed: list[float] = []
    for x in wanted:
        placed.append(max(x, placed[-1] + apart) if placed else x)
    limit = last
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - apart
    return placed


def _draw_legend(axes: Axes, events: list[Event], kinds: list[str], top: float) -> None:
    rows = -(-len(kinds) // 2)
    for index, kind in enumerate(kinds):
        column, row = divmod(index, rows)
        x, y = 0.3 + column * COLUMN, top - row * ROW
        same = [event for event in events if event.kind == kind]
        moved = sum(event.moved for event in same)
        write(axes, x, y, str(index + 1), size=9, weight="bold", ha="right")
        write(axes, x + 0.12, y, kind, size=10, ha="left")
        amount = f"{in_bytes(moved)} between devices" if moved else "for the gradients" if kind == WAIT else "computes"
        write(axes, x + 1.75, y, amount, size=9, colour=FAINT, ha="left")
