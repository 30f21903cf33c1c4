"""Which collectives each rank has called, in order, and which have not ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .canvas import canvas, write
from .palette import ALARM, BOX, LINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEFT, STEP, ROW, TOP = 0.9, 1.6, 0.6, 0.55
WIDTH, HEIGHT = 1.44, 0.44  # of a box
MIN_WIDTH = 5.0  # room for the title


def calls_made(calls: Sequence[Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw one row a rank, one box a collective; a thick orange edge where it has not ended.

        pictures.calls_made(calls)  # calls[0][0]: {"number": 1, "call": "all_reduce", "ended": True, "line": 31}

    calls  for each rank its calls, as a flight recorder lists them; only these four words of each are used
    """
    from matplotlib.patches import Rectangle

    numbers = [call["number"] for row in calls for call in row]
    if not numbers:
        raise ValueError("no rank has called anything")
    first = min(numbers)
    height = TOP + ROW * len(calls) + 0.1
    width = max(LEFT + STEP * (max(numbers) - first + 1), MIN_WIDTH)
    figure, axes = canvas(width, height, "what each rank has called; thick edge: not ended")
    for rank, row in enumerate(calls):
        y = height - TOP - ROW * (rank + 0.5)
        write(axes, LEFT / 2, y, f"rank {rank}")
        for call in row:
            x = LEFT + STEP * (call["number"] - first + 0.5)
            edge, line = (LINE, 1) if call["ended"] else (ALARM, 4)
            corner = (x - WIDTH / 2, y - HEIGHT / 2)
            axes.add_patch(Rectangle(corner, WIDTH, HEIGHT, facecolor=BOX, edgecolor=edge, linewidth=line))
            write(axes, x, y, f"#{call['number']} {call['call']}\nline {call['line']}", size=9)
    return figure
