"""scaling(): model, link and batch, and where communication overtakes compute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..pictures.message_cost import TIMES, UNITS, human
from ..pictures.step_parts import step_parts
from ..scaling.model import Link, Work, communication, crossover, efficiency, largest
from .explorer import Explorer, widgets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("weak", "strong")
STEP = 0.002  # of a slider, in powers of ten
ASKED = (2, 8, 64, 1024)


def scaling(
    parameters: float = 25e6,
    sample_ms: float = 3,
    batch: int = 32,
    latency_us: float = 20,
    gigabytes: float = 10,
    overlap: float = 0.5,
    kind: str = KINDS[0],
) -> Explorer:
    """Turn the size of the model, its compute and the link, and see where communication overtakes compute.

    >>> from ddp_helpers import explore
    >>> explore.scaling(parameters=7e9, gigabytes=50)  # doctest: +SKIP

    Args:
        parameters: each has a gradient of four bytes.
        sample_ms: what a process computes for one sample, forward and backward.
        batch: samples of a step of one process.
        latency_us: α of the link, microseconds a message.
        gigabytes: bandwidth of the link, GB/s.
        overlap: the share of backward that can hide communication.
        kind: "weak", each rank keeps its batch, or "strong", the ranks share it.

    The starting values are an example, not a measurement. Put in your own: lesson 10 measures them. The formulas and
    their sources are in ddp_helpers/scaling/model.py.
    """
    library = widgets()
    wide = {"style": {"description_width": "8em"}, "continuous_update": True}
    scale = {"step": STEP, "readout_format": ".3r", **wide}
    controls = {
        "parameters": library.FloatLogSlider(
            on_grid(parameters), min=4, max=11, description="parameters", **{**scale, "readout_format": ".3s"}
        ),
        "sample_ms": library.FloatLogSlider(on_grid(sample_ms), min=-3, max=3, description="a sample, ms", **scale),
        "batch": library.IntSlider(batch, 1, 1024, description="batch", **wide),
        "latency_us": library.FloatLogSlider(on_grid(latency_us), min=-1, max=4, description="latency α, µs", **scale),
        "gigabytes": library.FloatLogSlider(on_grid(gigabytes), min=-3, max=3, description="link, GB/s", **scale),
        "overlap": library.FloatSlider(overlap, min=0, max=1, step=0.05, description="overlap", **wide),
        "kind": library.Dropdown(options=KINDS, value=kind, description="scaling", style=wide["style"]),
    }
    return Explorer(controls, _draw, numbers)


def on_grid(value: float) -> float:
    """The slider's next position: a browser would move it there by itself, and the numbers with it."""
    return float(10 ** (round(math.log10(value) / STEP) * STEP))


def model_of(
    parameters: float, sample_ms: float, latency_us: float, gigabytes: float, overlap: float
) -> tuple[Work, Link]:
    """The controls' values in the model's units."""
    work = Work(0.0, sample_ms / 1e3, 4 * parameters, overlap=overlap)
    return work, Link(latency_us / 1e6, gigabytes * 1e9)


def _draw(kind: str, batch: int, **values: float) -> Figure:
    work, link = model_of(**values)
    return step_parts(work, link, batch, strong=kind == KINDS[1])


def numbers(kind: str, batch: int, **values: float) -> str:
    """The numbers as a table, and a word on which part of the link is to blame."""
    work, link = model_of(**values)
    strong = kind == KINDS[1]
    lines = [f"{'ranks':>6}{'compute':>12}{'communication':>16}{'efficiency':>12}"]
    most = largest(batch, strong)
    for ranks in (*(n for n in ASKED if n < most), most):
        compute = work.compute(batch / ranks if strong else batch)
        seconds = communication(link, ranks, work.size)
        share = efficiency(work, link, ranks, batch, strong)
        lines.append(f"{ranks:>6}{human(compute, TIMES):>12}{human(seconds, TIMES):>16}{share:>12.0%}")
    return "\n".join([*lines, "", _remark(work, link, batch, strong)])


def _remark(work: Work, link: Link, batch: int, strong: bool) -> str:
    found = crossover(work, link, batch, strong)
    size = human(work.size, UNITS)
    if found is None:
        until = f"up to {largest(batch, strong)} ranks"
        until += ", when each has one sample" if strong and largest(batch, strong) == batch else ""
        return f"Communication ({size} of gradients) stays below compute on {until}."
    limit = 2 * work.size / link.bandwidth
    if strong:
        return f"From {found} ranks on communication takes longer: what a rank computes shrinks, the {size} do not."
    if limit > work.compute(batch):
        return (
            f"From {found} ranks on communication takes longer, because of the bytes: {size} of gradients cross\nthe "
            f"link up to twice, in {human(limit, TIMES)}. More samples a step would help, or fewer bytes."
        )
    return f"From {found} ranks on communication takes longer, because of the latency: each rank adds two messages."
