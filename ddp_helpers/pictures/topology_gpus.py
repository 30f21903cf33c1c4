"""GPUs, the processors they hang on, and the links between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .canvas import box, canvas, rank_chip, small, write
from .palette import BOX, FAINT, LINE, PAPER, TEXT
from .ranges import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..doctor.machine import Gpu, Link, Machine

CHIP, GAP, NODE_GAP, MARGIN = 0.95, 0.2, 0.55, 0.3  # inches
NODE, CHIP_HEIGHT = 2.05, 0.62
NARROWEST = 2.3  # a node with one GPU: its name needs the room
FLOOR = 0.65  # where the small print stands, up to three lines of it

KINDS = {
    "PIX": "through one PCIe switch",
    "PXB": "through several PCIe switches",
    "PHB": "through the processor's PCIe bridge",
    "NODE": "through two PCIe bridges of one processor",
    "SYS": "across to the other processor",
}


@dataclass(frozen=True)
class Place:
    gpu: Gpu
    rank: int | None
    x: float  # the middle of its chip


def draw(machine: Machine, gpus: tuple[Gpu, ...], ranks: int | None) -> Figure:
    nodes = _nodes(gpus)
    width = max(7.2, 2 * MARGIN + _inner_width(nodes))
    height = FLOOR + _below(machine, gpus) + NODE + 0.55
    figure, axes = canvas(width, height, _title(machine, gpus))
    top = height - 0.6
    places = _place(nodes, _ranks(gpus, ranks), width)
    _draw_nodes(axes, machine, nodes, places, top)
    _draw_links(axes, machine, places, top - NODE + 0.2)
    small(axes, width / 2, FLOOR / 2, _small_print(machine, places))
    return figure


def _below(machine: Machine, gpus: tuple[Gpu, ...]) -> float:
    """The height that the links take under the GPUs."""
    links = _shown(machine, {gpu.index for gpu in gpus})
    if _joins_everyone(links, len(gpus)):
        return 1.3
    return 1.75 if any(link.kind.startswith("NV") for link in links) else 1.15


def _shown(machine: Machine, gpus: set[int]) -> list[Link]:
    return [link for link in machine.links if link.a in gpus and link.b in gpus]


def _joins_everyone(links: list[Link], gpus: int) -> bool:
    kinds = {link.kind for link in links}
    return gpus > 2 and len(kinds) == 1 and next(iter(kinds)).startswith("NV")


def _title(machine: Machine, gpus: tuple[Gpu, ...]) -> str:
    models = Counter(gpu.model.removeprefix("NVIDIA ").removeprefix("GeForce ") for gpu in gpus)
    return f"{machine.name}: " + ", ".join(f"{count} × {model}" for model, count in models.items())


def _nodes(gpus: tuple[Gpu, ...]) -> list[tuple[int | None, list[Gpu]]]:
    nodes: dict[int | None, list[Gpu]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu.numa, []).append(gpu)
    return list(nodes.items())


def _ranks(gpus: tuple[Gpu, ...], wanted: int | None) -> dict[int, int]:
    """The GPU of each rank: {GPU number: rank}. Without a wish, the GPUs that doctor() would give one job."""
    from ..doctor.visible import free_gpus, same_model

    chosen = same_model(free_gpus(gpus)) if wanted is None else gpus[:wanted]
    return {gpu.index: rank for rank, gpu in enumerate(chosen)}


def _node_width(gpus: int) -> float:
    return max(NARROWEST, gpus * (CHIP + GAP) + GAP)


def _inner_width(nodes: list[tuple[int | None, list[Gpu]]]) -> float:
    return sum(_node_width(len(group)) for _, group in nodes) + NODE_GAP * (len(nodes) - 1)


def _place(nodes: list[tuple[int | None, list[Gpu]]], ranks: dict[int, int], width: float) -> list[Place]:
    left = (width - _inner_width(nodes)) / 2
    places = []
    for _, group in nodes:
        middle = left + _node_width(len(group)) / 2
        for column, gpu in enumerate(group):
            x = middle + (column - (len(group) - 1) / 2) * (CHIP + GAP)
            places.append(Place(gpu, ranks.get(gpu.index), x))
        left += _node_width(len(group)) + NODE_GAP
    return places


def _draw_nodes(
    axes: Axes, machine: Machine, nodes: list[tuple[int | None, list[Gpu]]], places: list[Place], top: float
) -> None:
    by_gpu = {place.gpu.index: place for place in places}
    edges = []
    for numa, group in nodes:
        middle = (by_gpu[group[0].index].x + by_gpu[group[-1].index].x) / 2
        left, right = middle - _node_width(len(group)) / 2, middle + _node_width(len(group)) / 2
        edges.append((left, right))
        box(axes, left, top - NODE, right - left, NODE)
        name = "processor" if numa is None else f"processor, NUMA node {numa}"
        write(axes, (left + right) / 2, top - 0.2, name, weight="bold")
        small(axes, (left + right) / 2, top - 0.45, _cores(machine, numa, len(nodes) == 1))
        rail = top - 0.75
        xs = [by_gpu[gpu.index].x for gpu in group]
        axes.plot([left + 0.15, right - 0.15], [rail, rail], color=LINE, lw=3, solid_capstyle="butt")
        for x in xs:
            axes.plot([x, x], [rail, top - NODE + 0.2 + CHIP_HEIGHT], color=LINE, lw=1.5)
        write(axes, left + 0.15, rail + 0.1, "PCIe", size=8, colour=FAINT, ha="left")
    for (_, right), (left, _) in pairwise(edges):
        axes.plot([right, left], [top - 0.32] * 2, color=LINE, lw=5, ls=(0, (1, 0.6)), solid_capstyle="butt")
        small(axes, (right + left) / 2, top - 0.1, "SYS")
    for place in places:
        _draw_gpu(axes, place, top - NODE + 0.2, mixed=len({p.gpu.model for p in places}) > 1)


def _cores(machine: Machine, numa: int | None, only_one: bool) -> str:
    cpus = [cpu.cpu for cpu in machine.cpus if only_one or cpu.numa == numa]
    return f"cores {short(cpus)}" if cpus else "cores unknown"


def _draw_gpu(axes: Axes, place: Place, y: float, mixed: bool) -> None:
    left = place.x - CHIP / 2
    name = f"GPU {place.gpu.index}"
    if place.rank is None:
        box(axes, left, y, CHIP, CHIP_HEIGHT, face=PAPER)
        write(axes, place.x, y + CHIP_HEIGHT / 2, f"{name}\nleft out", colour=FAINT)
    else:
        rank_chip(axes, place.rank, left, y, CHIP, CHIP_HEIGHT, f"{name}\nrank {place.rank}")
    if mixed:
        model = place.gpu.model.removeprefix("NVIDIA ").removeprefix("GeForce ")
        write(axes, place.x + 0.05, y + CHIP_HEIGHT + 0.13, model, size=8, colour=FAINT, ha="left")


def _draw_links(axes: Axes, machine: Machine, places: list[Place], y: float) -> None:
    at = {place.gpu.index: place.x for place in places}
    links = _shown(machine, set(at))
    nvlinks = [link for link in links if link.kind.startswith("NV")]
    if _joins_everyone(links, len(places)):
        _draw_everyone(axes, nvlinks[0].kind, list(at.values()), y)
    elif nvlinks:
        _draw_pairs(axes, nvlinks, at, y)
    else:
        write(axes, sum(at.values()) / len(at), y - 0.72, _without_nvlink(links), size=10)


def _draw_everyone(axes: Axes, kind: str, xs: list[float], y: float) -> None:
    bar, height = y - 1.2, 0.5
    for x in xs:
        axes.plot([x, x], [bar + height, y], color=TEXT, lw=4, solid_capstyle="butt")
    box(axes, min(xs) - CHIP / 2, bar, max(xs) - min(xs) + CHIP, height, face=BOX, edge=TEXT)
    text = f"NVLink joins every pair: {kind.removeprefix('NV')} links ({kind})"
    write(axes, (min(xs) + max(xs)) / 2, bar + height / 2, text, weight="bold")


def _draw_pairs(axes: Axes, links: list[Link], at: dict[int, float], y: float) -> None:
    from matplotlib.patches import Arc

    longest = max(abs(at[link.a] - at[link.b]) for link in links)
    for link in links:
        left, right = sorted((at[link.a], at[link.b]))
        depth = min(0.5, longest / 4) + min(0.8, longest / 4) * (right - left) / longest
        count = int(link.kind.removeprefix("NV"))
        axes.add_patch(
            Arc(((left + right) / 2, y), right - left, 2 * depth, theta1=180, theta2=360, lw=1 + count, ec=TEXT)
        )
    counts = sorted({int(link.kind.removeprefix("NV")) for link in links})
    for row, count in enumerate(counts):
        x, line = min(at.values()) - CHIP / 2, y - 1.45 - 0.22 * row
        axes.plot([x, x + 0.4], [line, line], color=TEXT, lw=1 + count, solid_capstyle="butt")
        small(axes, x + 0.5, line, f"NV{count}: {count} NVLink{'s' if count > 1 else ''}", ha="left")


def _without_nvlink(links: list[Link]) -> str:
    kinds = [kind for kind in KINDS if any(link.kind == kind for link in links)]
    ways = "\n".join(f"{kind}: {KINDS[kind]}" for kind in kinds)
    blocked = any(link.peer is False for link in links)
    last = "\nand no GPU reads another's memory: NCCL copies through /dev/shm" if blocked else ""
    return (
        f"no NVLink: from GPU to GPU over PCIe\n{ways}{last}"
        if ways
        else "the driver does not tell how they are joined"
    )


def _small_print(machine: Machine, places: list[Place]) -> str:
    parts = ["One rank a GPU."]
    if any(place.rank is None for place in places):
        parts.append("Coloured: the GPUs of the job. doctor() chooses free ones, all of one model.")
    if machine.source:
        parts.append("A recorded machine, made by hand from public reports: doctor() names them.")
    return "\n".join(parts)
