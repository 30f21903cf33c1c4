"""All checks on one machine."""

from __future__ import annotations

from . import (
    cores,
    driver,
    gpu_memory,
    gpus,
    hostname,
    links,
    memory,
    nccl,
    ports,
    shared_memory,
    software,
    threads,
)
from .machine import Machine
from .recorded import recorded
from .report import Report
from .world_size import advise

CHECKS = (
    software.check,
    gpus.check,
    driver.check,
    nccl.check,
    links.check,
    gpu_memory.check,
    cores.check,
    threads.check,
    memory.check,
    shared_memory.check,
    hostname.check,
    ports.check,
)


def doctor(machine: str | Machine | None = None) -> Report:
    """Look at this machine and say what fits, what does not, and how many ranks to start.

        report = doctor()
        report                          # in a notebook: the report
        report["shared memory"].do      # one line of it
        doctor(machine="8-gpu-server")  # a recorded machine

    machine: the name of a recorded machine (ddp_helpers.doctor.recorded_names()), a Machine, or None for this one.
    Nothing here starts CUDA: GPUs are read through NVML. Raises ValueError for an unknown name.
    """
    if machine is None:
        from .gather import this_machine

        return examine(this_machine())
    return examine(recorded(machine) if isinstance(machine, str) else machine)


def examine(machine: Machine) -> Report:
    """The report on these facts; a pure function, so that recorded machines and tests can use it."""
    return Report(machine, tuple(check(machine) for check in CHECKS), advise(machine))
