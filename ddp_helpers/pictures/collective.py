"""What each rank holds before and after a collective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from .canvas import canvas, rank_chip, small, write
from .palette import BOX, FAINT, LINE, PAPER, TEXT, colour, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..result import Run

Value = float | None  # None: the collective promises nothing for it
Rows = list[list[Value]]

MARGIN, ROW, CELL, CHIP, ARROWS = 0.25, 0.46, 0.36, 0.68, 0.8
HEAD, FOOT, BETWEEN = 0.6, 0.14, 0.45
PAGE = 10.0  # inches; as many panels stand side by side as fit
LETTERS = 14  # of small print, an inch


def collective(what: Run | Mapping[str, tuple[Sequence[Any], Sequence[Any]]], title: str = "", root: int = 0) -> Figure:
    """Draw the ranks' values before and after one or more collectives, one panel each.

        pictures.collective({"broadcast": ([[7], [8]], [[7], [7]])})
        pictures.collective(run)  # of a script run with --return before --return after

    what   a panel's name → (before, after), both with one row a rank: a list of numbers, a tensor, or a number; an
           empty row is a rank that has nothing. None in `after` is a value that the collective leaves undefined. From a
           Run: each rank has returned the dicts `before` and `after`, a name → that rank's row.
    root   the rank that `reduce` sums to: on the others its result is scratch, and drawn hatched

    A value that stood on exactly one rank before has that rank's colour, and a line from there; one that is made of
    several ranks' values is white. Values tell where lines start: no two ranks should share one, nor a sum contain a 0.
    Raises ValueError for a run that returned no such dicts, and for rows that do not match.
    """
    panels = [_panel(name, rows, root) for name, rows in (_of_run(what) if hasattr(what, "ranks") else what).items()]
    if not panels:
        raise ValueError("there is no collective to draw")
    per_row = max(1, int((PAGE - 2 * MARGIN + BETWEEN) / (max(panel.width for panel in panels) + BETWEEN)))
    lines = [panels[start : start + per_row] for start in range(0, len(panels), per_row)]
    column = max(panel.width for panel in panels)
    top = 0.5 if title else 0.1
    width = 2 * MARGIN + max(len(line) for line in lines) * (column + BETWEEN) - BETWEEN
    key = wrap(_key(panels), int((width - 2 * MARGIN) * LETTERS))
    height = top + sum(max(panel.height for panel in line) for line in lines) + 0.1 + 0.2 * len(key)
    figure, axes = canvas(width, height, title)
    y = height - top
    for line in lines:
        for number, panel in enumerate(line):
            _draw_panel(axes, panel, MARGIN + number * (column + BETWEEN), y)
        y -= max(panel.height for panel in line)
    for number, words in enumerate(reversed(key)):
        small(axes, MARGIN, 0.16 + 0.2 * number, words, ha="left")
    return figure


@dataclass(frozen=True)
class Panel:
    """One collective, and the measures of its drawing in inches."""

    name: str
    before: Rows
    after: Rows
    scratch: frozenset[int]
    cell: float

    @property
    def left_cells(self) -> int:
        return max(1, *(len(row) for row in self.before))

    @property
    def width(self) -> float:
        right = max(1, *(len(row) for row in self.after))
        return CHIP + 0.1 + (self.left_cells + right) * self.cell + ARROWS

    @property
    def height(self) -> float:
        return HEAD + len(self.before) * ROW + FOOT


def origin(value: Value, before: Rows) -> int | None:
    """The one rank that held the value before: `origin(8, [[7, 9], [8, 9]])` is 1, and `origin(9, …)` None."""
    holders = [rank for rank, row in enumerate(before) if value in row]
    return holders[0] if value is not None and len(holders) == 1 else None


def senders(receiver: int, before: Rows, after: Rows) -> set[int]:
    """The ranks that a rank's result came from, itself among them where it kept something."""
    return {rank for index, value in enumerate(after[receiver]) for rank in sources(value, index, receiver, before)}


def sources(value: Value, index: int, receiver: int, before: Rows) -> set[int]:
    """The ranks whose values went into it: one, or the receiver and one other (a step of a ring), or all."""
    holder = origin(value, before)
    if value is None:
        return set()
    if holder is not None:
        return {holder}
    own = _at(before, receiver, index)
    for rank in range(len(before)):
        other = _at(before, rank, index)
        if rank != receiver and own is not None and other is not None and isclose(own + other, value):
            return {receiver, rank}
    return {rank for rank, row in enumerate(before) if row}


def _at(rows: Rows, rank: int, index: int) -> Value:
    return rows[rank][index] if index < len(rows[rank]) else None


def _of_run(run: Any) -> dict[str, tuple[list[Any], list[Any]]]:
    returned = [rank.returned for rank in run.ranks]
    if not all(isinstance(values.get(name), dict) for values in returned for name in ("before", "after")):
        raise ValueError("the run must return the dicts before and after: --return before --return after")
    before, after = ([values[name] for values in returned] for name in ("before", "after"))
    return {name: ([row[name] for row in before], [row[name] for row in after]) for name in after[0]}


def _panel(name: str, rows: tuple[Sequence[Any], Sequence[Any]], root: int) -> Panel:
    before, after = ([_row(row) for row in side] for side in rows)
    if len(before) != len(after):
        raise ValueError(f"{name}: {len(before)} ranks before, but {len(after)} after")
    scratch = frozenset(rank for rank in range(len(after)) if name.split()[:1] == ["reduce"] and rank != root)
    longest = max((len(_shown(value)) for row in before + after for value in row), default=1)
    return Panel(name, before, after, scratch, max(CELL, 0.1 * longest + 0.14))


def _row(row: Any) -> list[Value]:
    plain = row.tolist() if hasattr(row, "tolist") else row
    return list(plain) if isinstance(plain, Iterable) else [plain]


def _shown(value: Value) -> str:
    return "?" if value is None else f"{value:.4g}"


def _draw_panel(axes: Axes, panel: Panel, left: float, top: float) -> None:
    write(axes, left, top - 0.16, panel.name, size=12, weight="bold", ha="left", family="monospace")
    start = left + CHIP + 0.1
    middle = start + panel.left_cells * panel.cell
    right = middle + ARROWS
    small(axes, start, top - 0.42, "before", ha="left")
    small(axes, right, top - 0.42, "after", ha="left")
    heights = [top - HEAD - (rank + 0.5) * ROW for rank in range(len(panel.before))]
    for rank, y in enumerate(heights):
        rank_chip(axes, rank, left, y - 0.17, CHIP, 0.34, f"rank {rank}").set_fontsize(10)
        _draw_row(axes, panel, panel.before[rank], start, y)
        _draw_row(axes, panel, panel.after[rank], right, y, scratch=rank in panel.scratch)
    _draw_lines(axes, panel, middle + 0.06, right - 0.08, heights)


def _draw_row(axes: Axes, panel: Panel, row: list[Value], left: float, y: float, scratch: bool = False) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    if not row:
        write(axes, left + panel.cell / 2, y, "–", colour=FAINT)
        return
    faces = []
    for number, value in enumerate(row):
        rank = origin(value, panel.before)
        undefined = scratch or value is None
        face, text = (BOX, FAINT) if undefined else (PAPER, TEXT) if rank is None else (colour(rank), ink(rank))
        shown = write(axes, left + (number + 0.5) * panel.cell, y, _shown(value), colour=text)
        if undefined:
            shown.set_bbox({"facecolor": BOX, "edgecolor": "none", "pad": 1.0})
        faces.append(face)
    cells = [Rectangle((left + number * panel.cell, y - 0.17), panel.cell, 0.34) for number in range(len(row))]
    hatch = "////" if BOX in faces else None  # a row is undefined as a whole
    edge = LINE if hatch else TEXT
    axes.add_collection(PatchCollection(cells, facecolors=faces, edgecolors=edge, lw=1.0, hatch=hatch, zorder=2.5))


def _draw_lines(axes: Axes, panel: Panel, start: float, end: float, heights: list[float]) -> None:
    from matplotlib.collections import LineCollection

    pairs = [
        (sender, receiver)
        for receiver in range(len(heights))
        if receiver not in panel.scratch
        for sender in sorted(senders(receiver, panel.before, panel.after))
    ]
    lines = [[(start, heights[sender]), (end, heights[receiver])] for sender, receiver in pairs]
    axes.add_collection(LineCollection(lines, colors=[colour(sender) for sender, _ in pairs], lw=1.6, zorder=2))
    tips = sorted({heights[receiver] for _, receiver in pairs})
    axes.plot([end] * len(tips), tips, ls="", marker=">", ms=5, color=TEXT, zorder=2.2)


def _key(panels: list[Panel]) -> str:
    words = ["a value in a rank's colour stood on that rank alone before"]
    values = [(value, panel) for panel in panels for row in panel.after for value in row]
    if any(value is not None and origin(value, panel.before) is None for value, panel in values):
        words.append("white: made of several ranks' values")
    if any(panel.scratch for panel in panels) or any(value is None for value, _ in values):
        words.append("hatched: not defined")
    return "; ".join(words)
