"""How gradients fill DDP's buckets, in the order in which backward makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .canvas import canvas, small, write
from .palette import ALARM, LINE, TEXT, colour, ink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, LEFT, RIGHT, ROW = 9.0, 1.1, 7.6, 0.42
MIB = 2**20


def fill(sizes: Sequence[int], cap: float, first: float) -> list[list[int]]:
    """The positions of the gradients in each bucket. A bucket is closed when it has reached its cap."""
    buckets: list[list[int]] = []
    open_bucket: list[int] = []
    for position in range(len(sizes)):
        open_bucket.append(position)
        if sum(sizes[n] for n in open_bucket) >= (cap if buckets else first):
            buckets.append(open_bucket)
            open_bucket = []
    return [*buckets, open_bucket] if open_bucket else buckets


def buckets(sizes: Sequence[int], cap_mb: float = 25, first_mb: float | None = None) -> Figure:
    """Draw which gradients travel together: a row a bucket, a block a gradient, and the cap as a line.

        pictures.buckets([4 * p.numel() for p in model.parameters()][::-1], cap_mb=4)

    sizes     bytes of each gradient, in the order in which backward makes them
    cap_mb    DDP's bucket_cap_mb, in MiB
    first_mb  the cap of the first bucket; without it, that of all. DDP's default is 25 with a first one of 1.
    Raises ValueError when there is nothing to draw.
    """
    from matplotlib.patches import Rectangle

    if not sizes or cap_mb <= 0 or min(sizes) <= 0:
        raise ValueError("buckets need at least one gradient with a size above 0, and a cap above 0")
    first = int((first_mb or cap_mb) * MIB)
    rows = fill(sizes, int(cap_mb * MIB), first)
    longest = max(sum(sizes[n] for n in row) for row in rows)
    scale = (RIGHT - LEFT) / longest
    height = 1.15 + ROW * len(rows)
    figure, axes = canvas(WIDTH, height, f"{_count(len(sizes), 'gradient')} in {_count(len(rows), 'bucket')}")
    small(
        axes,
        0.15,
        height - 0.55,
        "each block is a gradient (a bias may be too thin to see); the first row leaves first",
        ha="left",
    )
    for number, row in enumerate(rows):
        bottom, x = height - 0.8 - ROW * (number + 1), LEFT
        write(axes, 0.15, bottom + ROW / 2, f"bucket {number}", ha="left", size=10)
        for n in row:
            width = sizes[n] * scale
            axes.add_patch(Rectangle((x, bottom + 0.06), width, ROW - 0.12, fc=colour(0), ec="white", lw=0.8))
            if width > 0.6:
                write(axes, x + width / 2, bottom + ROW / 2, _mib(sizes[n]), size=8, colour=ink(0))
            x += width
        total = sum(sizes[n] for n in row)
        small(axes, RIGHT + 0.15, bottom + ROW / 2, f"{_mib(total)} MiB", ha="left")
        cap = first if number == 0 else cap_mb * MIB
        if cap <= longest:
            edge = LEFT + cap * scale
            axes.plot([edge, edge], [bottom + 0.02, bottom + ROW - 0.02], color=ALARM, lw=2)
    axes.plot([LEFT, LEFT], [height - 0.8 - ROW * len(rows), height - 0.8], color=LINE, lw=0.8)
    write(axes, LEFT, 0.17, f"orange: the cap, {cap_mb:g} MiB; what reaches it closes the bucket", size=9, ha="left")
    axes.texts[-1].set_color(TEXT)
    return figure


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _mib(size: float) -> str:
    return f"{size / MIB:.2f}" if size >= MIB / 100 else f"{size / MIB:.4f}"
