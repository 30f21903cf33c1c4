"""Which gradients a number format can hold: a histogram over powers of two, with the zones of the format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .canvas import OURS
from .palette import FAINT, PAPER, TEXT, colour

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOW, HIGH = -64, 24  # powers of two that are drawn; what is smaller stands in the first bar, what is larger in the last
ZONES = {"zero": ("#C9C9C9", "xx"), "subnormal": ("#F2E5C4", "//"), "normal": (PAPER, ""), "inf": ("#C9C9C9", "..")}


@dataclass(frozen=True)
class Fates:
    """What becomes of the values that are not 0, as shares of them; `exact_zeros` is the share of all that are 0."""

    zero: float
    subnormal: float
    normal: float
    inf: float
    exact_zeros: float


def gradient_histogram(gradients: Any, scale: float = 1.0, dtype: Any = None) -> Figure:
    """Draw gradients by their size, and what a small format makes of them, before and after a loss scale.

        pictures.gradient_histogram(gradients, scale=2.0**16)

    gradients  numbers of any shape, a tensor or an array; signs are ignored, and exact zeros only counted
    scale      what they are multiplied by in the second row; 1 for no second row
    dtype      torch.float16 when left out; its `finfo` gives the zones
    Bars are shares of all values that are not 0; one bar a power of two. Raises ValueError when all are 0 or some are
    not finite.
    """
    from matplotlib.figure import Figure

    sizes, zeros = _sizes(gradients)
    edges = zone_edges(dtype)
    scales = [1.0] if scale == 1 else [1.0, scale]
    figure = Figure(figsize=(8.6, 0.75 + 2.15 * len(scales)), facecolor=PAPER, dpi=100, layout="constrained")
    figure.set_gid(OURS)
    for axes, factor in zip(figure.subplots(len(scales), 1, squeeze=False, sharex=True)[:, 0], scales, strict=True):
        _draw(axes, sizes * factor, edges, fates(gradients, factor, dtype), factor)
    axes.set_xlabel("size of a gradient, as a power of two", fontsize=10, color=TEXT)
    name = str(dtype or "torch.float16").removeprefix("torch.")
    title = f"what {name} makes of {sizes.size:,} gradients"
    if zeros:
        title += f" ({zeros:,} others are exactly 0 already)"
    figure.suptitle(title, fontsize=12, weight="bold", color=TEXT)
    return figure


def fates(gradients: Any, scale: float = 1.0, dtype: Any = None) -> Fates:
    """The shares that die and live: `fates([0.0, 1.0, 1e-9]).zero` is 0.5."""
    import torch

    sizes, zeros = _sizes(gradients)
    exact = torch.as_tensor(sizes * scale).to(torch.float64)
    held = exact.to(dtype or torch.float16).to(torch.float64)
    tiny = torch.finfo(dtype or torch.float16).smallest_normal
    dead, over = held == 0, held.isinf()
    subnormal = (held < tiny) & ~dead
    shares = [float(mask.double().mean()) for mask in (dead, subnormal, over)]
    return Fates(shares[0], shares[1], 1 - sum(shares), shares[2], zeros / (zeros + sizes.size))


def zone_edges(dtype: Any = None) -> tuple[float, float, float]:
    """As powers of two: below the first a value becomes 0, below the second subnormal, from the third on infinite."""
    import torch

    info = torch.finfo(dtype or torch.float16)
    smallest = info.smallest_normal * info.eps
    return math.log2(smallest / 2), math.log2(info.smallest_normal), math.log2(info.max)


def _sizes(gradients: Any) -> tuple[np.ndarray[Any, Any], int]:
    """The sizes of those that are not 0, and how many are 0."""
    import numpy as np

    if hasattr(gradients, "detach"):
        gradients = gradients.detach().cpu().double().numpy()
    values = np.abs(np.asarray(gradients, dtype=np.float64)).ravel()
    if not np.isfinite(values).all():
        raise ValueError("some gradients are infinite or NaN: give those from before the overflow")
    if not values.any():
        raise ValueError("there is no gradient other than 0, so there is nothing to draw")
    return values[values > 0], int((values == 0).sum())


def _draw(
    axes: Axes, sizes: np.ndarray[Any, Any], edges: tuple[float, float, float], shares: Fates, factor: float
) -> None:
    import numpy as np

    bounds = np.clip((LOW, *edges, HIGH), LOW, HIGH)
    counts, _ = np.histogram(np.clip(np.log2(sizes), LOW, HIGH - 0.5), bins=np.arange(LOW, HIGH + 1))
    heights = counts / sizes.size
    top = max(heights) * 1.5
    for (name, (face, hatch)), (start, end) in zip(ZONES.items(), pairwise(bounds), strict=True):
        if start == end:  # a zone beyond what is drawn: bf16 has such
            continue
        axes.axvspan(start, end, fc=face, ec="#9A9A9A" if hatch else PAPER, hatch=hatch, lw=0, alpha=0.55, zorder=0)
        label = {"zero": "becomes 0", "inf": "overflows"}.get(name, name)
        text = f"{label}\n{getattr(shares, name):.1%}"
        box = {"fc": PAPER, "ec": "none", "pad": 1.5, "alpha": 0.9}
        axes.text((start + end) / 2, top * 0.97, text, ha="center", va="top", fontsize=9.5, color=TEXT, bbox=box)
    axes.bar(np.arange(LOW, HIGH) + 0.5, heights, width=1.0, fc=colour(0), ec=PAPER, lw=0.3, zorder=2)
    axes.set(xlim=(LOW, HIGH), ylim=(0, top), yticks=[])
    axes.set_ylabel("share of the gradients", fontsize=10, color=TEXT)
    axes.set_xticks(range(LOW, HIGH + 1, 8), [f"$2^{{{power}}}$" for power in range(LOW, HIGH + 1, 8)])
    title = (
        "as they are" if factor == 1 else f"with the loss multiplied by {factor:,.0f} = $2^{{{math.log2(factor):g}}}$"
    )
    axes.set_title(title, fontsize=10.5, loc="left", color=FAINT)
