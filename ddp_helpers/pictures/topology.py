"""What the ranks of this machine sit on: its GPUs and their links, or its cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import topology_cores, topology_gpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..doctor import Machine


def topology(machine: str | Machine | None = None, ranks: int | None = None) -> Figure:
    """Draw a machine: with two or more GPUs, and enough for the ranks, their links; otherwise its cores.

        pictures.topology()                # this machine
        pictures.topology("8-gpu-server")  # a recorded one
        pictures.topology(ranks=4)         # four ranks on the cores of this one

    machine: a recorded machine's name, a Machine, or None for this one. ranks: how many to draw; None for as many as
    doctor() advises. Raises ValueError for an unknown name or for fewer than one rank.
    """
    from ..doctor import doctor
    from ..doctor.visible import visible_gpus

    if ranks is not None and ranks < 1:
        raise ValueError(f"a picture needs at least one rank, not {ranks}")
    report = doctor(machine)
    gpus = visible_gpus(report.machine)
    if len(gpus) >= max(2, ranks or 0):  # a run with more ranks than GPUs goes to the processor
        return topology_gpus.draw(report.machine, gpus, ranks)
    return topology_cores.draw(report.machine, ranks or report.world_size)
