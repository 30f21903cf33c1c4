"""All checks on one machine."""

from __future__ import annotations

from . import (
    architecture,
    cores,
    disk,
    driver,
    gpu_health,
    gpu_memory,
    gpu_mode,
    gpus,
    hostname,
    limits,
    links,
    memory,
    nccl,
    nvlink,
    ports,
    settings,
    shared_memory,
    software,
    threads,
)
from .machine import Machine
from .recorded import recorded
from .report import Report
from .world_size import advise

# The order of the report. Some are shown only when they found something (Finding.minor).
CHECKS = (
    software.check,
    gpus.check,
    driver.check,
    architecture.check,
    gpu_health.check,
    gpu_mode.check,
    nccl.check,
    links.check,
    nvlink.check,
    gpu_memory.check,
    cores.check,
    threads.check,
    memory.check,
    shared_memory.check,
    disk.check,
    limits.check,
    hostname.check,
    ports.check,
    settings.check,
)


def doctor(machine: str | Machine | None = None) -> Report:
    """Look at this machine and say what fits, what does not, and how many ranks to start.

        report = doctor()
        report                          # in a notebook: the report
        report["shared memory"].do      # one line of it
        doctor(machine="8-gpu-server")  # a recorded machine

    machine: the name of a recorded machine (ddp_helpers.doctor.recorded_names()), a Machine, or None for this one.
    CUDA is not started in this process: GPUs are read through NVML, and where there are some, a process of its own
    tries whether CUDA starts. Raises ValueError for an unknown name.
    """
    if machine is None:
        from .gather import this_machine

        return examine(this_machine())
    return examine(recorded(machine) if isinstance(machine, str) else machine)


def examine(machine: Machine) -> Report:
    """The report on these facts; a pure function, so that recorded machines and tests can use it."""
    return Report(machine, tuple(check(machine) for check in CHECKS), advise(machine))
