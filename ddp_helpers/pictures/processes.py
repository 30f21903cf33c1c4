"""Which process is which: nodes, the torchrun of each node, its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .canvas import box, canvas, rank_chip, small, write
from .palette import LINE, PAPER, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..result import Rank, Run

CHIP, GAP, NODE_GAP, MARGIN = 1.15, 0.2, 0.5, 0.3
CHIP_HEIGHT = 0.85
MOST_IN_ROW = 6


def processes(run: Run) -> Figure:
    """Draw a run's processes: one box a node, in it torchrun and the ranks it started.

        pictures.processes(run)

    Each rank shows its rank and its local rank; they are read from `run.ranks`. A node begins where the local
    rank is 0 again, because torchrun numbers the ranks of a node one after the other. Raises ValueError when the run
    started no rank.
    """
    nodes = split_into_nodes(run.ranks)
    if not nodes:
        raise ValueError("this run started no rank, so there is nothing to draw")
    most = max(len(node) for node in nodes)
    rows = -(-most // MOST_IN_ROW)
    per_row = -(-most // rows)
    columns = [max(2, min(per_row, len(node))) for node in nodes]
    widths = [count * (CHIP + GAP) + GAP for count in columns]
    width = 2 * MARGIN + sum(widths) + NODE_GAP * (len(nodes) - 1)
    node_height = 1.35 + rows * (CHIP_HEIGHT + 0.3)
    figure, axes = canvas(max(width, 5.0), node_height + 0.95, _title(run, nodes))
    left = (max(width, 5.0) - width) / 2 + MARGIN
    for index, (node, node_width) in enumerate(zip(nodes, widths, strict=True)):
        _draw_node(axes, index, _rows(node, per_row), left, node_height + 0.2, node_width, node_height)
        left += node_width + NODE_GAP
    return figure


def split_into_nodes(ranks: list[Rank]) -> list[list[Rank]]:
    nodes: list[list[Rank]] = []
    for rank in sorted(ranks, key=lambda rank: rank.rank):
        if not nodes or rank.local_rank == 0:
            nodes.append([])
        nodes[-1].append(rank)
    return nodes


def _title(run: Run, nodes: list[list[Rank]]) -> str:
    world = len(run.ranks)
    where = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"world size {world}: {world} process{'es' if world > 1 else ''} on {where}"


def _rows(node: list[Rank], per_row: int) -> list[list[Rank]]:
    return [node[start : start + per_row] for start in range(0, len(node), per_row)]


def _draw_node(
    axes: Axes, index: int, rows: list[list[Rank]], left: float, top: float, width: float, height: float
) -> None:
    box(axes, left, top - height, width, height)
    write(axes, left + width / 2, top - 0.22, f"node {index}", weight="bold", size=11)
    middle, parent = left + width / 2, top - 0.85
    box(axes, middle - 0.6, parent, 1.2, 0.38, face=PAPER, edge=TEXT, zorder=2.5)
    write(axes, middle, parent + 0.19, "torchrun", family="monospace")
    small(axes, middle + 0.7, parent + 0.19, f"started {sum(len(row) for row in rows)}", ha="left")
    for number, row in enumerate(rows):
        _draw_row(axes, row, middle, parent, number)


def _draw_row(axes: Axes, ranks: list[Rank], middle: float, parent: float, row: int) -> None:
    y = parent - 0.42 - CHIP_HEIGHT - row * (CHIP_HEIGHT + 0.3)
    for column, rank in enumerate(ranks):
        x = middle + (column - len(ranks) / 2) * (CHIP + GAP) + GAP / 2
        if row == 0:
            axes.plot([middle, x + CHIP / 2], [parent, y + CHIP_HEIGHT], color=LINE, lw=1.4)
        rank_chip(axes, rank.rank, x, y, CHIP, CHIP_HEIGHT, f"rank {rank.rank}\nlocal rank {rank.local_rank}")
