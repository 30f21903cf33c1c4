"""Published speeds side by side: how many times as fast, on what hardware, and who says so."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .canvas import canvas, small, write
from .palette import BOX, FAINT, LINE, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, LEFT, RIGHT = 9.0, 3.0, 7.9  # inches; bars begin at LEFT, the longest ends at RIGHT
ROW, BAR = 0.62, 0.34


def speed_up(rows: Sequence[Mapping[str, str]], base: str, title: str = "") -> Figure:
    """Draw how many times as fast as `base` each row is, with hardware and source named on the picture.

        with open("../data/published_figures.csv", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["topic"] == "dp_vs_ddp" and "ResNet" in row["workload"]]
        pictures.speed_up(rows, base="1 GPU")

    rows   rows of data/published_figures.csv: what they measure must be one thing, in one unit
    base   the setting of the row that counts as 1×
    title  what is seen; by default the workload and the base
    Times are turned over, so that longer is always faster. A dashed outline is the ideal: as many times as fast as
    there are times as many GPUs. Raises ValueError when no row is the base, or rows differ in their unit.
    """
    speeds = speed_ups(rows, base)
    ideals = [ideal(row["setting"], base) for row in rows]
    scale = (RIGHT - LEFT) / max(*speeds, *(value or 0 for value in ideals), 1)
    sources = textwrap.wrap("Source: " + "; ".join(dict.fromkeys(row["source"] for row in rows)), 105)
    hardware = list(dict.fromkeys(row["hardware"] for row in rows))
    height = 1.15 + ROW * len(rows) + 0.22 * len(sources)
    figure, axes = canvas(WIDTH, height, title or f"{rows[0]['workload']}: speed against {base}")
    small(axes, 0.15, height - 0.58, f"measured by others, on {'; '.join(hardware)}", ha="left")
    for index, (row, speed, best) in enumerate(zip(rows, speeds, ideals, strict=True)):
        _draw_row(axes, row, speed, best, height - 1.0 - index * ROW, scale, len(hardware) > 1)
    axes.plot([LEFT, LEFT], [0.3 + 0.22 * len(sources), height - 0.8], color=TEXT, lw=1.2)
    for number, line in enumerate(sources):
        small(axes, 0.15, 0.1 + 0.22 * (len(sources) - number - 0.5), line, ha="left")
    return figure


def speed_ups(rows: Sequence[Mapping[str, str]], base: str) -> list[float]:
    """How many times as fast as the row whose setting is `base`: `[1.0, 1.8]` for times of 90 s and 50 s."""
    units = {row["unit"] for row in rows}
    if len(units) > 1:
        raise ValueError(f"these rows cannot be compared: their units are {', '.join(sorted(units))}")
    first = next((float(row["value"]) for row in rows if row["setting"] == base), None)
    if first is None:
        raise ValueError(f"no row has the setting {base!r}; there are {', '.join(row['setting'] for row in rows)}")
    values = [float(row["value"]) for row in rows]
    takes_time = units.pop().split("/")[0] in ("ms", "s", "min", "h")
    return [first / value if takes_time else value / first for value in values]


def ideal(setting: str, base: str) -> float | None:
    """`ideal("DDP 8 GPU", "1 GPU")` is 8.0; None where there are no more GPUs than in the base."""
    counts = [re.search(r"(\d+) GPU", text) for text in (setting, base)]
    if counts[0] is None or counts[1] is None:
        return None
    times = int(counts[0].group(1)) / int(counts[1].group(1))
    return times if times > 1 else None


def _draw_row(
    axes: Axes, row: Mapping[str, str], speed: float, best: float | None, y: float, scale: float, name_it: bool
) -> None:
    from matplotlib.patches import Rectangle

    figures = f"{row['value']} {row['unit']}"
    write(axes, 0.15, y - 0.08, row["setting"], size=11, weight="bold", ha="left")
    small(axes, 0.15, y - 0.3, f"{row['hardware']}, {figures}" if name_it else figures, ha="left")
    bottom = y - BAR
    end = LEFT + speed * scale
    if best:
        axes.add_patch(
            Rectangle((LEFT, bottom), best * scale, BAR, fc=BOX, ec=FAINT, lw=1.0, ls=(0, (4, 3)), zorder=1.5)
        )
        small(axes, LEFT + best * scale + 0.1, bottom + BAR / 2, f"ideal {best:g}×", ha="left")
    axes.add_patch(Rectangle((LEFT, bottom), speed * scale, BAR, fc=colour(0), ec=LINE, lw=0.8, zorder=2))
    inside = speed * scale > 0.8
    x, ha, ink = (end - 0.1, "right", "#FFFFFF") if inside else (end + 0.1, "left", TEXT)
    write(axes, x, bottom + BAR / 2, f"{speed:.2f}×", size=11, weight="bold", ha=ha, colour=ink)
