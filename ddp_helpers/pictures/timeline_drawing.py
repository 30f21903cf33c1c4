"""Draw the rows of a timeline: above computing, below communicating, and between them where both happen at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..traces.intervals import common, union
from ..traces.read import LOADER, STEP
from .canvas import canvas, rank_chip, small, write
from .palette import FAINT, LINE, PAPER, TEXT, colour
from .parallel_step import in_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..traces import Collective, Label, Share, Trace
    from ..traces.intervals import Interval
    from ..traces.shares import Lane
    from ..traces.window import Window

WIDTH, LEFT, RIGHT = 9.0, 1.0, 7.3  # inches; between LEFT and RIGHT runs the time
ABOVE, BELOW = 0.75, 0.85  # for the title; for the axis and the legend
PHASES = 0.2
HEIGHTS = ((2, 1.2), (4, 0.98), (1_000_000, 0.62))  # of a row, up to so many ranks
ROOMY = 0.7  # rows higher than this have labels above them
THINNEST = 0.02  # a collective of a microsecond is still seen
APART = 0.06  # collectives that are shorter, and nearer to the next one, share a bar: their outlines would fill it
CHARACTER = 0.068  # of text in print of size 8
LEGEND_SAMPLE = (0.3, 0.13)


@dataclass(frozen=True)
class Row:
    """All that is drawn of one rank. `collectives` are in ms from the left; `move` brings the rest there."""

    trace: Trace
    window: Window
    lane: Lane
    share: Share
    collectives: list[Collective]
    move: float
    hidden: set[str]


@dataclass(frozen=True)
class Place:
    """Where a row is on the page: inches; `scale` is inches a ms."""

    scale: float
    move: float
    top: float
    height: float
    phases: bool

    @property
    def room(self) -> float:
        """The height of what is above the line, and of what is below it."""
        return (self.height - 0.14 - PHASES * self.phases) / 2

    @property
    def middle(self) -> float:
        return self.top - PHASES * self.phases - self.room

    def x(self, time: float) -> float:
        return LEFT + (time + self.move) * self.scale

    def bars(self, times: Iterable[Interval]) -> list[Interval]:
        """(left, width) of what is drawn; gaps that would be invisible are closed, so that the file stays small."""
        return [(self.x(start), (end - start) * self.scale) for start, end in union(times, gap=0.004 / self.scale)]


def draw_timeline(rows: list[Row], title: str, head: str) -> Figure:
    height = next(inches for most, inches in HEIGHTS if len(rows) <= most)
    total = max(row.window.end + row.move for row in rows) or 1.0
    figure, axes = canvas(WIDTH, ABOVE + BELOW + height * len(rows), title)
    top, scale = BELOW + height * len(rows), (RIGHT - LEFT) / total
    small(axes, 0.15, top + 0.26, head, ha="left")
    _draw_axis(axes, total, scale, top)
    for number, row in enumerate(rows):
        _draw_row(axes, row, Place(scale, row.move, top - number * height, height, phases=height > ROOMY))
    _draw_legend(axes, any(row.lane.data for row in rows))
    return figure


def _draw_row(axes: Axes, row: Row, place: Place) -> None:
    rank = row.trace.rank or 0
    middle, room = place.middle, place.room
    rank_chip(axes, rank, 0.15, middle - 0.13, 0.7, 0.26, f"rank {rank}")
    if place.phases:
        _draw_phases(axes, row, place)
    for start, _ in row.window.steps[1:]:
        axes.plot([place.x(start)] * 2, [middle - room, middle + room], color=TEXT, lw=0.9, ls=":")
    axes.plot([LEFT, RIGHT], [middle, middle], color=LINE, lw=0.6, zorder=1)
    above = (middle + 0.05, room - 0.05)
    axes.broken_barh(place.bars(row.lane.compute), above, fc=colour(rank), ec=TEXT, lw=0.25, zorder=2)
    axes.broken_barh(place.bars(row.lane.data), above, fc=PAPER, ec=FAINT, hatch="....", lw=0.8, zorder=2)
    axes.broken_barh(place.bars(row.lane.overlap), (middle - 0.03, 0.06), fc=TEXT, ec="none", zorder=3)
    _draw_collectives(axes, row, place)
    _write_share(axes, row.share, middle, roomy=place.phases)


def _draw_collectives(axes: Axes, row: Row, place: Place) -> None:
    """Each one a bar; where two are under way at once, the bars share the height."""
    ends: list[float] = []
    levels = []
    for one in row.collectives:
        level = next((level for level, end in enumerate(ends) if end <= one.start), len(ends))
        ends[level : level + 1] = [one.end]
        levels.append(level)
    height = (place.room - 0.05) / max(len(ends), 1)
    window = (row.window.start + row.move, row.window.end + row.move)
    waiting = [(start + row.move, end + row.move) for start, end in row.lane.waiting]
    for level, ones in _bars(row.collectives, levels, APART / place.scale):
        times = [(max(one.start, window[0]), min(one.end, window[1])) for one in ones]
        _draw_bar(axes, times, waiting, (place.scale, place.middle - 0.05 - (level + 1) * height, height))
        left, width = _across((times[0][0], times[-1][1]), place.scale)
        _write_in(axes, ones, (left, place.middle - 0.05 - (level + 1) * height, width, height))


def _bars(collectives: list[Collective], levels: list[int], apart: float) -> list[tuple[int, list[Collective]]]:
    """What shares a bar, with its level: mostly one; neighbours that are all short and near share one."""
    bars: list[tuple[int, list[Collective]]] = []
    last: dict[int, list[Collective]] = {}
    for one, level in zip(collectives, levels, strict=True):
        before = last.get(level)
        thin = before is not None and max(one.end - one.start, before[-1].end - before[-1].start) < apart
        if before and thin and one.start - before[-1].end < apart:
            before.append(one)
        else:
            last[level] = [one]
            bars.append((level, last[level]))
    return bars


def _across(when: Interval, scale: float) -> tuple[float, float]:
    return LEFT + when[0] * scale, max((when[1] - when[0]) * scale, THINNEST)


def _draw_bar(axes: Axes, times: list[Interval], waiting: list[Interval], where: tuple[float, float, float]) -> None:
    from matplotlib.patches import Rectangle

    scale, bottom, height = where
    left, width = _across((times[0][0], times[-1][1]), scale)
    axes.add_patch(Rectangle((left, bottom), width, height, fc=PAPER, ec=TEXT, lw=0.7, zorder=2))
    entered = [next((end for start, end in common(waiting, [when]) if start == when[0]), when[0]) for when in times]
    busy = [(start, when[1]) for start, when in zip(entered, times, strict=True)]
    for start, end in union(busy, gap=THINNEST / scale):
        begins = LEFT + start * scale
        wide = (left + width if end == times[-1][1] else LEFT + end * scale) - begins
        if wide > 0.005:
            axes.add_patch(Rectangle((begins, bottom), wide, height, fc=PAPER, ec=TEXT, hatch="////", lw=0.7, zorder=2))


def _write_in(axes: Axes, ones: list[Collective], where: tuple[float, float, float, float]) -> None:
    """What it is and its size, as much of that as the bar has room for; upright in a narrow one."""
    left, bottom, width, height = where
    sizes, names = {one.size for one in ones}, {one.name for one in ones}
    only = sizes.pop() if len(sizes) == 1 else None
    size = "" if only is None else in_bytes(only)
    name = names.pop() if len(names) == 1 else "collectives"
    count = f"{len(ones)} × " if len(ones) > 1 else ""
    for text in (f"{count}{name} {size}".strip(), f"{count}{size or name}", count.strip()):
        long = CHARACTER * len(text) + 0.06
        flat = long <= width and height >= 0.15
        if text and (flat or (long <= height + 0.1 and width >= 0.19)):
            label = write(axes, left + width / 2, bottom + height / 2, text, size=8)
            label.set(bbox={"fc": PAPER, "ec": "none", "pad": 0.4}, zorder=4, rotation=0 if flat else 90)
            return


def _draw_phases(axes: Axes, row: Row, place: Place) -> None:
    """The outermost labels of the script, as brackets above the row."""
    until = float("-inf")
    for label in row.trace.labels:
        start, end = max(label.start, row.window.start), min(label.end, row.window.end)
        if label.name.startswith(STEP) or label.name in row.hidden or start >= end or label.end <= until:
            continue
        until = label.end
        left, right, name = place.x(start), place.x(end), readable(label)
        if len(name) * CHARACTER > right - left:
            continue
        y = place.top - PHASES + 0.02
        axes.plot([left, left, right, right], [y, y + 0.05, y + 0.05, y], color=FAINT, lw=0.8)
        text = write(axes, (left + right) / 2, y + 0.12, name, size=8, colour=FAINT)
        text.set(bbox={"fc": PAPER, "ec": "none", "pad": 0.3})


def readable(label: Label) -> str:
    """torch's own labels are long: "Optimizer.step#SGD.step" becomes "SGD.step"."""
    if label.name.startswith(LOADER):
        return "data"
    return label.name.split("#")[-1].replace("DistributedDataParallel.", "DDP ")


def _write_share(axes: Axes, share: Share, middle: float, roomy: bool) -> None:
    lines = ["nothing communicated"]
    if share.communication_ms:
        lines = [f"overlap {share.overlap_percent:.0f} %", f"waits {share.waiting_ms:.3g} ms"]
        if roomy:
            lines.insert(1, f"({share.overlap_ms:.3g} of {share.communication_ms:.3g} ms)")
    for number, line in enumerate(lines):
        small(axes, RIGHT + 0.15, middle + ((len(lines) - 1) / 2 - number) * 0.19, line, ha="left")


def _draw_axis(axes: Axes, total: float, scale: float, top: float) -> None:
    from matplotlib.ticker import MaxNLocator

    y = BELOW - 0.02
    axes.plot([LEFT, RIGHT], [y, y], color=LINE, lw=0.8)
    ticks = [
        float(tick) for tick in MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(0, total) if 0 <= tick <= total * 1.0001
    ]
    for tick in ticks:
        x = LEFT + tick * scale
        axes.plot([x, x], [y, y - 0.05], color=LINE, lw=0.8)
        axes.plot([x, x], [y, top], color=LINE, lw=0.3, zorder=0.5)
        small(axes, x, y - 0.14, f"{tick:g}")
    small(axes, RIGHT + 0.15, y - 0.14, "ms", ha="left")


def _draw_legend(axes: Axes, data: bool) -> None:
    from matplotlib.patches import Rectangle

    samples = [
        ("computes", {"fc": colour(0), "ec": "none"}),
        ("communicates", {"fc": PAPER, "ec": TEXT, "hatch": "////"}),
        ("waits for the last rank to enter", {"fc": PAPER, "ec": TEXT}),
        ("both at once", {"fc": TEXT, "ec": "none"}),
    ]
    if data:
        samples.append(("fetches data", {"fc": PAPER, "ec": FAINT, "hatch": "...."}))
    x = 0.3
    for name, style in samples:
        width, height = LEGEND_SAMPLE
        if name == "both at once":
            height = 0.06
        axes.add_patch(Rectangle((x, 0.27 - height / 2), width, height, lw=0.7, **style))
        small(axes, x + width + 0.08, 0.27, name, ha="left")
        x += width + 0.35 + 0.065 * len(name)
