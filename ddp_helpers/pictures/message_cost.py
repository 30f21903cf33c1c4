"""How long a collective takes, by the size of its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .canvas import OURS
from .palette import PAPER, TEXT, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vPX*"
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


class Cost(NamedTuple):
    """The line of best fit: time = latency + bytes / bandwidth."""

    latency: float
    """α, seconds: what a message costs however small it is."""
    bandwidth: float
    """1/β, bytes of the tensor a second: what a large message tends to."""

    def seconds(self, size: float) -> float:
        return self.latency + size / self.bandwidth

    @property
    def knee(self) -> float:
        """The size in bytes at which both parts take as long."""
        return self.latency * self.bandwidth


def fit_cost(sizes: Sequence[float], seconds: Sequence[float]) -> Cost:
    """Fit time = α + β · bytes, by least squares of the logarithms: as the eye does on logarithmic axes.

        fit_cost([1e3, 1e6, 1e9], [0.001001, 0.002, 1.001])  # Cost(latency=0.001, bandwidth=1e9)

    sizes    bytes, above 0, at least two of them different
    seconds  above 0, one a size
    Both numbers come out above 0, whatever the noise. Raises ValueError for sizes and seconds that do not match.
    Source of the model: R. W. Hockney, "The communication challenge for MPP" (Parallel Computing 20, 1994).
    """
    import numpy as np

    x, t = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if len(x) != len(t) or len(set(x.tolist())) < 2 or not (t > 0).all() or not (x > 0).all():
        raise ValueError("a fit needs two different sizes or more, each with a time above 0")
    low, high = x.min() / 10, x.max() * 10
    for _ in range(6):  # time = α (1 + bytes / knee): for each knee the best α is known, so search the knee
        knees = np.geomspace(low, high, 100)
        logarithms = np.log(t) - np.log1p(x / knees[:, None])
        best = int(logarithms.var(axis=1).argmin())
        low, high = knees[max(best - 1, 0)], knees[min(best + 1, 99)]
    latency = float(np.exp(logarithms[best].mean()))
    return Cost(latency, float(knees[best]) / latency)


def message_cost(times: Mapping[int, tuple[Sequence[float], Sequence[float]]], name: str = "all_reduce") -> Figure:
    """Draw time against message size, both on logarithmic axes, with the fitted line of each world size.

        pictures.message_cost({2: ([4, 4e6], [1e-4, 3e-3]), 4: ([4, 4e6], [2e-4, 5e-3])})

    times  world size → (sizes in bytes, seconds)
    name   of the collective, for the title
    The legend gives latency and bandwidth of each line, and the dotted line the size at which both cost as much.
    `fit_cost` has the numbers; it raises ValueError when there are too few.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), facecolor=PAPER, dpi=100, layout="constrained")
    figure.set_gid(OURS)
    axes = figure.add_subplot()
    for number, (world, (sizes, seconds)) in enumerate(sorted(times.items())):
        _draw_fit(axes, number, world, sizes, seconds)
    axes.set(xscale="log", yscale="log", xlabel="size of the tensor", ylabel="time")
    axes.set_title(f"{name}: flat while the latency counts, rising with the bytes", loc="left", weight="bold", size=12)
    axes.xaxis.set_major_formatter(lambda value, _: human(value, UNITS))
    axes.yaxis.set_major_formatter(lambda value, _: human(value, TIMES))
    axes.grid(which="major", color="#DDDDDD", lw=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=TEXT)
    axes.legend(loc="upper left", frameon=True, fontsize=10)
    return figure


def human(value: float, units: Sequence[tuple[str, float]]) -> str:
    """`human(4e6, UNITS)` is "4 MB", and `human(0.00025, TIMES)` "250 µs"."""
    unit, scale = next(((unit, scale) for unit, scale in units if value >= scale * 0.9995), units[-1])
    scaled = value / scale
    return f"{scaled:.0f} {unit}" if scaled >= 9.95 else f"{scaled:.2g} {unit}"


def _draw_fit(axes: Axes, number: int, world: int, sizes: Sequence[float], seconds: Sequence[float]) -> None:
    import numpy as np

    cost = fit_cost(sizes, seconds)
    curve = np.geomspace(min(sizes), max(sizes), 200)
    line = "-" if number % 2 == 0 else "--"
    label = f"{world} ranks: {human(cost.latency, TIMES)} + bytes / ({human(cost.bandwidth, UNITS)}/s)"
    if min(sizes) < cost.knee < max(sizes):
        label += f"; half and half at {human(cost.knee, UNITS)}"
        axes.axvline(cost.knee, color=colour(number), lw=1.2, ls=":", zorder=1)
    marker = MARKERS[number % len(MARKERS)]
    axes.plot(curve, [cost.seconds(size) for size in curve], line, color=colour(number), lw=2, label=label, zorder=2)
    axes.plot(sizes, seconds, marker, color=colour(number), mec=TEXT, ms=6, ls="", zorder=3)
