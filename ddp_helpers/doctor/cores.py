"""How many processor cores do we really have?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine


def check(machine: Machine) -> Finding:
    cores = machine.cores
    physical = len({(cpu.package, cpu.core) for cpu in machine.cpus}) or cores
    found = f"{cores} core{'s' if cores > 1 else ''} for this process"
    if physical < cores:
        found += f" (hardware threads of {physical} physical cores)"
    if machine.cpu_limit is not None and machine.cpu_limit < cores:
        return Finding(
            "cores",
            "warning",
            f"{found}, but the container may use the time of {machine.cpu_limit:g}",
            "Programs start a thread for each core they see, then wait for each other's turn.",
            f"Start no more than {max(1, int(machine.cpu_limit))} ranks × threads, or ask for a larger limit.",
        )
    if cores == 1:
        why = "Ranks take turns. Everything works; nothing will look faster with two."
        cure = "Slurm gives one core unless asked: --cpus-per-task=4." if machine.slurm == "job" else ""
        return Finding("cores", "note", found, why, cure)
    return Finding("cores", "ok", found, "As many ranks as cores can compute at the same time.")
