"""What each rank holds of a model between two steps: parameters, gradients, the optimizer's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .canvas import canvas, small, write
from .palette import TEXT, colour, ink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = ("parameters", "gradients", "optimizer")
LEFT, WIDTH, ROW = 2.0, 6.2, 0.42


def memory_per_rank(held: Mapping[str, Sequence[Mapping[str, int]]], title: str = "") -> Figure:
    """Draw a bar of bytes for each rank of each way to train.

        pictures.memory_per_rank({"DDP": [{"parameters": 4, "gradients": 4, "optimizer": 8}]})

    held  for each way, what each rank holds: a number of bytes for "parameters", "gradients" and "optimizer"
    """
    from matplotlib.patches import Rectangle

    most = max(sum(rank.values()) for ranks in held.values() for rank in ranks)
    height = 1.25 + sum(ROW * len(ranks) + 0.2 for ranks in held.values())
    figure, axes = canvas(LEFT + WIDTH + 1.2, height, title)
    y = height - 0.6
    for way, ranks in held.items():
        write(axes, 0.15, y - ROW * len(ranks) / 2, way, ha="left", weight="bold")
        for number, rank in enumerate(ranks):
            y -= ROW
            small(axes, LEFT - 0.1, y + ROW / 2, f"rank {number}", "right")
            x = LEFT
            for index, part in enumerate(PARTS):
                wide = WIDTH * rank[part] / most
                axes.add_patch(Rectangle((x, y + 0.05), wide, ROW - 0.1, fc=colour(index), ec=TEXT, lw=0.6))
                x += wide
            write(axes, x + 0.1, y + ROW / 2, f"{sum(rank.values()) / 2**20:.1f} MiB", size=9, ha="left")
        y -= 0.2
    for index, part in enumerate(PARTS):
        x = LEFT + 2.1 * index
        axes.add_patch(Rectangle((x, 0.18), 2.0, 0.3, fc=colour(index), ec=TEXT, lw=0.6))
        write(axes, x + 1.0, 0.33, part, size=9, colour=ink(index))
    return figure
