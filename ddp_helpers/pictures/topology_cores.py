"""Cores, and the ranks that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .canvas import box, canvas, rank_chip, small, write
from .palette import LINE, PAPER, TEXT
from .ranges import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..doctor.machine import Cpu, Machine

WIDTH, MARGIN = 8.0, 0.3
CHIP_WIDTH, CHIP_HEIGHT = 0.95, 0.45
NUMBERED = 32  # up to so many processors each square carries its number
ROW = 0.62  # height of a row of cores


def draw(machine: Machine, ranks: int) -> Figure:
    nodes = _nodes(machine.cpus)
    per_row = max(1, int((_node_width(len(nodes)) - 0.2) / _pitch(machine.cpus)))
    rows = max(-(-len(cores) // per_row) for _, cores in nodes)
    node_height = _head(machine.cpus) + 0.1 + rows * ROW
    chip_rows = -(-ranks // 7)
    height = 0.75 + chip_rows * 0.75 + 0.7 + node_height + 0.45
    figure, axes = canvas(WIDTH, height, _title(machine, ranks))
    bottom = _draw_ranks(axes, ranks, height - 0.75, _threads(machine, ranks))
    _draw_arrow(axes, bottom, machine.cores, ranks)
    _draw_nodes(axes, nodes, bottom - 0.7, node_height, _pitch(machine.cpus))
    small(axes, WIDTH / 2, 0.22, _small_print(machine))
    return figure


def _threads(machine: Machine, ranks: int) -> int:
    """The threads of a rank: what the user set, or else a fair share of the cores."""
    wanted = machine.omp_num_threads or ""
    return int(wanted) if wanted.isdigit() and int(wanted) else max(1, machine.cores // ranks)


def _title(machine: Machine, ranks: int) -> str:
    cores = machine.cores
    return f"{machine.name}: {ranks} rank{'s' if ranks > 1 else ''} on {cores} core{'s' if cores > 1 else ''}"


def _nodes(cpus: tuple[Cpu, ...]) -> list[tuple[int, list[list[int]]]]:
    """[(NUMA node, [processor numbers of one physical core, …])], the node and its cores in order."""
    nodes: dict[int, dict[tuple[int, int], list[int]]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu.numa, cpu.package, cpu.core, cpu.cpu)):
        nodes.setdefault(cpu.numa, {}).setdefault((cpu.package, cpu.core), []).append(cpu.cpu)
    return [(numa, list(cores.values())) for numa, cores in nodes.items()] or [(0, [[0]])]


def _pitch(cpus: tuple[Cpu, ...]) -> float:
    """The width that one physical core takes."""
    siblings = max((len(core) for _, cores in _nodes(cpus) for core in cores), default=1)
    return siblings * (0.5 if len(cpus) <= NUMBERED else 0.16) + 0.14


def _head(cpus: tuple[Cpu, ...]) -> float:
    """The height of a node's name, and of its cores' numbers where the squares are too small for them."""
    return 0.45 if len(cpus) <= NUMBERED else 0.68


def _node_width(nodes: int) -> float:
    return (WIDTH - 2 * MARGIN - 0.25 * (nodes - 1)) / nodes


def _draw_ranks(axes: Axes, ranks: int, top: float, threads: int) -> float:
    """The ranks in rows of seven; returns the height at which the last row ends."""
    note = f"{threads} thread{'s' if threads > 1 else ''}"
    for rank in range(ranks):
        row, column = divmod(rank, 7)
        in_row = min(7, ranks - row * 7)
        x = WIDTH / 2 + (column - in_row / 2) * (CHIP_WIDTH + 0.12) + 0.06
        y = top - row * 0.75 - CHIP_HEIGHT
        rank_chip(axes, rank, x, y, CHIP_WIDTH, CHIP_HEIGHT, f"rank {rank}")
        small(axes, x + CHIP_WIDTH / 2, y - 0.12, note)
    return top - (-(-ranks // 7)) * 0.75 + 0.02


def _draw_arrow(axes: Axes, top: float, cores: int, ranks: int) -> None:
    head = {"arrowstyle": "-|>", "color": TEXT, "lw": 1.5, "mutation_scale": 14}
    axes.annotate("", (WIDTH / 2, top - 0.64), (WIDTH / 2, top - 0.08), arrowprops=head)
    text = "the operating system puts any rank on any core"
    write(axes, WIDTH / 2 + 0.15, top - 0.34, text, ha="left", size=10)
    turns = f"{ranks} ranks, {cores} cores: they take turns" if ranks > cores else "a core for each rank"
    write(axes, WIDTH / 2 - 0.15, top - 0.34, turns, ha="right", size=10, weight="bold")


def _draw_nodes(axes: Axes, nodes: list[tuple[int, list[list[int]]]], top: float, height: float, pitch: float) -> None:
    width = _node_width(len(nodes))
    for index, (numa, cores) in enumerate(nodes):
        left = MARGIN + index * (width + 0.25)
        box(axes, left, top - height, width, height)
        numbers = [cpu for core in cores for cpu in core]
        name = f"processor, NUMA node {numa}"
        write(axes, left + width / 2, top - 0.22, name, weight="bold")
        if pitch < 0.5:
            small(axes, left + width / 2, top - 0.47, f"cores {short(numbers)}")
        _draw_cores(axes, cores, left, top - (0.45 if pitch > 0.5 else 0.68), width, pitch, numbered=pitch > 0.5)


def _draw_cores(
    axes: Axes, cores: list[list[int]], left: float, top: float, width: float, pitch: float, numbered: bool
) -> None:
    from matplotlib.patches import Rectangle

    per_row = max(1, int((width - 0.2) / pitch))
    for index, core in enumerate(cores):
        row, column = divmod(index, per_row)
        in_row = min(per_row, len(cores) - row * per_row) if row == 0 else per_row
        x = left + (width - in_row * pitch) / 2 + column * pitch + 0.07
        y = top - row * ROW - 0.5
        step = (pitch - 0.14) / len(core)
        for place, cpu in enumerate(core):
            axes.add_patch(Rectangle((x + place * step, y), step, 0.42, fc=PAPER, ec=LINE, lw=1.0))
            if numbered:
                write(axes, x + (place + 0.5) * step, y + 0.21, str(cpu), size=10)
        axes.add_patch(Rectangle((x, y), pitch - 0.14, 0.42, fill=False, ec=TEXT, lw=1.4))


def _small_print(machine: Machine) -> str:
    shared = any(len(core) > 1 for _, cores in _nodes(machine.cpus) for core in cores)
    if shared:
        return "Dark frame: a physical core. Each square in it: a hardware thread, which the system counts as a core."
    return "Threads: OMP_NUM_THREADS." if machine.omp_num_threads else "Threads: cores ÷ ranks, at least one."
