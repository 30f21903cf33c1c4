"""The same number on each rank, step by step: do the ranks stay together, or drift apart?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .canvas import canvas, small, write
from .palette import FAINT, LINE, TEXT, colour
from .ranges import ranges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..result import Run

    Values = Sequence[Sequence[float]]

PANEL, HEIGHT, LEFT, LABELS = 2.6, 3.7, 0.95, 1.25  # inches
BOTTOM, ABOVE, LINE_HEIGHT = 0.82, 1.0, 0.2
TOGETHER = 1e-5  # rounding, in numbers of the size of weights
MARKERS = "osD^vP*X"


def drift(
    source: Run | Values | Mapping[str, Run | Values],
    name: str = "track",
    alone: Sequence[float] | None = None,
    title: str = "one weight, on each rank",
) -> Figure:
    """Draw a number of each rank over the steps; ranks that agree lie on one another, wide to narrow.

        pictures.drift({"nothing exchanged": run, "averaged": other}, alone=truth)

    source  a Run, or one row of values a rank, or several of these by the panel's title, drawn side by side
    name    the list that each rank of a Run returned (``--return track``): one value a step, the first before training
    alone   the same of a single process on the whole batch, drawn dashed in every panel
    Below each panel's title stands how far the ranks are apart after the last step. Raises ValueError when there is
    nothing to draw, or when rows differ in length.
    """
    sources = source if isinstance(source, Mapping) else {"": source}
    panels = {panel: _values(one, name) for panel, one in sources.items()}
    everything = [value for rows in panels.values() for row in [*rows, alone or []] for value in row]
    low, high = min(everything), max(everything)
    each = PANEL + LEFT + LABELS
    width = max(each * len(panels), 5.5)
    figure, page = canvas(width, HEIGHT, title)
    for number, (panel, rows) in enumerate(panels.items()):
        x = number * each + LEFT
        axes = figure.add_axes((x / width, BOTTOM / HEIGHT, PANEL / width, (HEIGHT - ABOVE - BOTTOM) / HEIGHT))
        _draw_panel(axes, rows, alone, (low, high))
        _label_ends(page, axes, x, rows, alone)
        write(page, x, HEIGHT - 0.62, panel, weight="bold", size=11, ha="left")
        write(page, x, HEIGHT - 0.85, f"this weight: {apart(rows)}", size=10, colour=FAINT, ha="left")
    figure.axes[1].set_ylabel("value of the weight", color=TEXT, fontsize=10)
    if any(len(rows) > 1 for rows in panels.values()):
        small(page, LEFT, 0.15, "rank 0 is drawn wide, so that others can be seen on it", ha="left")
    return figure


def apart(rows: Values) -> str:
    """How far the ranks are apart at the end, in words: `apart([[0, 1.0], [0, 1.5]])` is "0.5 apart after 1 step"."""
    last = [row[-1] for row in rows]
    steps = f"after {len(rows[0]) - 1} step{'s' * (len(rows[0]) != 2)}"
    spread = max(last) - min(last)
    return f"together {steps}" if spread < TOGETHER else f"{spread:.2g} apart {steps}"


def _values(source: Run | Values, name: str) -> list[list[float]]:
    rows = source if isinstance(source, Sequence) else [rank.returned[name] for rank in source.ranks]
    values = [[float(value) for value in row] for row in rows]
    lengths = {len(row) for row in values}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"drift() needs one row of values a rank, all of one length; these have {sorted(lengths)}")
    return values


def _draw_panel(axes: Axes, rows: Values, alone: Sequence[float] | None, limits: tuple[float, float]) -> None:
    margin = 0.08 * (limits[1] - limits[0] or 1.0)
    steps = len(rows[0]) - 1
    axes.set(xlim=(0, max(steps, 1)), ylim=(limits[0] - margin, limits[1] + margin), xlabel="step")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
    axes.tick_params(colors=FAINT, labelsize=9)
    axes.xaxis.label.set(color=TEXT, fontsize=10)
    axes.locator_params(axis="both", integer=False, nbins=5)
    for rank, row in enumerate(rows):
        width = 1.6 + 8.0 * (len(rows) - 1 - rank) / max(len(rows), 2)  # all are seen where they lie on one another
        marker = MARKERS[rank % len(MARKERS)]
        axes.plot(row, color=colour(rank), lw=width, marker=marker, ms=width + 3, markevery=_spread_out(rank, steps))
    if alone is not None:
        axes.plot(alone, color=TEXT, lw=1.4, ls=(0, (3, 2)))


def _spread_out(rank: int, steps: int) -> tuple[int, int]:
    """Markers of different ranks at different steps, so that they do not cover one another."""
    every = max(1, steps // 3)
    return rank * max(1, every // 4) % every, every


def _label_ends(page: Axes, axes: Axes, left: float, rows: Values, alone: Sequence[float] | None) -> None:
    """Say at the right whose line ends there; one label where several end at one height."""
    low, high = axes.get_ylim()
    groups: list[tuple[float, list[int]]] = []
    for value, rank in sorted((row[-1], rank) for rank, row in enumerate(rows)):
        if groups and value - groups[-1][0] < 0.03 * (high - low):
            groups[-1][1].append(rank)
        else:
            groups.append((value, [rank]))
    labels = [(value, _ranks(group)) for value, group in groups]
    if alone is not None:
        near = [number for number, (value, _) in enumerate(labels) if abs(value - alone[-1]) < TOGETHER]
        if near:
            labels[near[0]] = (alone[-1], f"{labels[near[0]][1]} and\none process")
        else:
            labels.append((alone[-1], "one process"))
    labels.sort()
    least = LINE_HEIGHT * max(text.count("\n") + 1 for _, text in labels)
    ends = [BOTTOM + (value - low) / (high - low) * (HEIGHT - ABOVE - BOTTOM) for value, _ in labels]
    for (_, text), end, y in zip(labels, ends, spread(ends, least, HEIGHT - ABOVE), strict=True):
        write(page, left + PANEL + 0.18, y, text, ha="left")
        page.plot([left + PANEL + 0.02, left + PANEL + 0.15], [end, y], color=LINE, lw=0.8, gid=text)


def spread(heights: Sequence[float], least: float, top: float) -> list[float]:
    """Move sorted heights apart to at least `least`, none above `top`: `spread([1, 1], 0.5, 9)` is [1, 1.5]."""
    places = list(heights)
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + least)
    for number in reversed(range(len(places))):
        ceiling = places[number + 1] - least if number + 1 < len(places) else top
        places[number] = min(places[number], ceiling)
    return places


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {ranges(numbers)}"
