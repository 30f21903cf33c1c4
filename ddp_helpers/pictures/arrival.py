"""Which lines of several processes that share one pipe arrived torn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .canvas import canvas, small, write
from .palette import ALARM, FAINT, LINE, PAPER, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGIN, CELL = 8.0, 0.3, 0.185
PER_ROW = int((WIDTH - 2 * MARGIN) / CELL)
WHOLE = "#BFD9EA"
MOST_CELLS = 400
EXAMPLES = 4


def torn_lines(text: str, expected: Iterable[str]) -> Figure:
    """Draw the lines of `text` in the order of their arrival: whole ones pale, torn ones dark and crossed.

        pictures.torn_lines(everything, expected=[f"hello {rank}" for rank in range(4)])

    text      what came out of the pipe
    expected  the lines that were printed; a line of `text` that is none of them was torn
    At most 400 lines are drawn, and counted in the title are all of them.
    """
    lines = text.splitlines()
    torn = find_torn(lines, expected)
    drawn = min(len(lines), MOST_CELLS)
    rows = max(1, -(-drawn // PER_ROW))
    examples = list(dict.fromkeys(lines[index] for index in torn))[:EXAMPLES]
    height = 0.6 + rows * CELL + 0.4 + (0.12 + 0.26 * len(examples) if examples else 0)
    figure, axes = canvas(WIDTH, height, _title(len(torn), len(lines)))
    top = height - 0.6
    _draw_cells(axes, drawn, set(torn), top)
    below = top - rows * CELL - 0.2
    note = "one square a line, in the order of arrival" + ("; ✕ torn" if torn else "")
    small(axes, MARGIN, below, note if drawn == len(lines) else f"{note}; the first {drawn} of {len(lines)}", ha="left")
    for row, line in enumerate(examples):
        _draw_example(axes, line, below - 0.35 - 0.26 * row, first=row == 0)
    return figure


def find_torn(lines: list[str], expected: Iterable[str]) -> list[int]:
    """The numbers of the lines that nobody printed: `find_torn(["ab", "abab", ""], ["ab"])` is [1, 2]."""
    whole = set(expected)
    return [index for index, line in enumerate(lines) if line not in whole]


def _title(torn: int, lines: int) -> str:
    if not lines:
        return "nothing arrived"
    if not torn:
        return f"all {lines} lines arrived whole"
    return f"{torn} of {lines} lines arrived torn ({torn / lines:.0%})"


def _draw_cells(axes: Axes, count: int, torn: set[int], top: float) -> None:
    from matplotlib.patches import Rectangle

    crosses = []
    for index in range(count):
        row, column = divmod(index, PER_ROW)
        x, y = MARGIN + column * CELL, top - (row + 1) * CELL
        face, edge = (ALARM, TEXT) if index in torn else (WHOLE, PAPER)
        axes.add_patch(Rectangle((x, y), CELL, CELL, fc=face, ec=edge, lw=0.8, zorder=3 if index in torn else 2))
        if index in torn:
            crosses.append((x + CELL / 2, y + CELL / 2))
    if crosses:  # a cross, so that torn lines are seen without colour too
        axes.plot(*zip(*crosses, strict=True), ls="", marker="x", ms=6, mew=1.3, color=TEXT, zorder=4)


def _draw_example(axes: Axes, line: str, y: float, first: bool) -> None:
    shown = line if len(line) <= 70 else line[:69] + "…"
    if first:
        small(axes, MARGIN, y, "torn:", ha="left")
    write(axes, MARGIN + 0.6, y, repr(shown), family="monospace", ha="left", size=10, colour=TEXT if line else FAINT)
    axes.plot([MARGIN + 0.5] * 2, [y - 0.11, y + 0.11], color=LINE, lw=1.5)
