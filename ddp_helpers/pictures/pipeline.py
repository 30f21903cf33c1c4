"""A pipeline's schedule: what each stage does when, laid out from the order in which it did it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .canvas import canvas, rank_chip, small, write
from .palette import LINE, TEXT, colour, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, ROW, WIDEST = 1.1, 0.5, 9.5


@dataclass(frozen=True)
class Piece:
    """One micro-batch's forward ("F") or backward ("B") on one stage; it begins at `start` and takes one unit."""

    stage: int
    kind: str
    micro: int
    start: int


def layout(orders: Sequence[Sequence[str]]) -> list[Piece]:
    """When each piece begins, if all take one unit and begin as soon as they may.

    >>> [piece.start for piece in layout([["F0", "B0"], ["F0", "B0"]])]
    [0, 3, 1, 2]

    `orders[s]` is what stage s did, such as ["F0", "F1", "B0", "B1"]. A forward needs the same micro-batch's forward on
    the stage before; a backward needs its backward on the stage after. Raises ValueError where that waits for ever.
    """
    starts: list[list[int]] = [[] for _ in orders]
    ends: dict[tuple[int, str], int] = {}
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while len(starts[stage]) < len(order):
                piece = order[len(starts[stage])]
                neighbour = stage - 1 if piece[0] == "F" else stage + 1
                needs = 0 <= neighbour < len(orders)
                if needs and (neighbour, piece) not in ends:
                    break
                free = starts[stage][-1] + 1 if starts[stage] else 0
                start = max(free, ends[neighbour, piece] if needs else 0)
                starts[stage].append(start)
                ends[stage, piece] = start + 1
                moved = True
    if any(len(begun) < len(order) for begun, order in zip(starts, orders, strict=True)):
        raise ValueError("the stages wait for each other for ever")
    return [
        Piece(stage, name[0], int(name[1:]), start)
        for stage, order in enumerate(orders)
        for name, start in zip(order, starts[stage], strict=True)
    ]


def bubble(orders: Sequence[Sequence[str]]) -> float:
    """The share of all stages' time in which they wait, as `layout` has it."""
    pieces = layout(orders)
    return 1 - len(pieces) / (len(orders) * max(piece.start + 1 for piece in pieces))


def most_held(order: Sequence[str]) -> int:
    """How many micro-batches a stage holds the activations of, at most: forward done, backward not yet."""
    held, most = 0, 0
    for piece in order:
        held += 1 if piece[0] == "F" else -1
        most = max(most, held)
    return most


def pipeline(orders: Sequence[Sequence[str]], title: str = "") -> Figure:
    """Draw what each stage does in each unit of time; white is waiting, a backward is hatched.

        pictures.pipeline([["F0", "F1", "B0", "B1"], ["F0", "F1", "B0", "B1"]], "GPipe")

    orders  for each stage, its forwards and backwards by micro-batch, in the order in which it did them
    Every piece is drawn one unit long, and as early as it may begin.
    """
    pieces = layout(orders)
    units = max(piece.start + 1 for piece in pieces)
    unit = min(0.42, (WIDEST - LEFT - 0.2) / units)
    height = 1.15 + ROW * len(orders)
    figure, axes = canvas(max(LEFT + 0.2 + unit * units, 6.8), height, _title(orders, title))
    for piece in pieces:
        _piece(axes, piece, LEFT + piece.start * unit, height - 0.6 - (piece.stage + 1) * ROW, unit)
    for stage in range(len(orders)):
        y = height - 0.6 - (stage + 1) * ROW
        rank_chip(axes, stage, 0.15, y + 0.06, 0.8, ROW - 0.12, f"rank {stage}").set_fontsize(9)
        axes.plot([LEFT, LEFT + units * unit], [y, y], color=LINE, lw=0.6, zorder=0)
    key = f"{units} units of time; plain: forward, hatched: backward; the number is the micro-batch's"
    small(axes, LEFT, 0.28, key, "left")
    return figure


def _piece(axes: Axes, piece: Piece, x: float, y: float, unit: float) -> None:
    from matplotlib.patches import Rectangle

    forward = piece.kind == "F"
    face = colour(piece.stage) if forward else "none"
    looks = {"fc": face, "ec": TEXT if forward else colour(piece.stage)}
    axes.add_patch(
        Rectangle((x + 0.01, y + 0.06), unit - 0.02, ROW - 0.12, lw=0.8, hatch=None if forward else "////", **looks)
    )
    if forward:
        write(axes, x + unit / 2, y + ROW / 2, str(piece.micro), size=9, colour=ink(piece.stage))
    else:
        text = write(axes, x + unit / 2, y + ROW / 2, str(piece.micro), size=9, colour=TEXT)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})


def _title(orders: Sequence[Sequence[str]], title: str) -> str:
    waits = f"{100 * bubble(orders):.0f} % of the time is waiting"
    return f"{title}: {waits}" if title else waits
