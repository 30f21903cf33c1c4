"""Is there memory for a few ranks?"""

from __future__ import annotations

from .finding import Finding
from .machine import GIB, Machine, size

# A rank that has imported torch and joined a gloo group, and nothing else: 0.35 GiB of its own (two ranks, torch 2.14,
# Linux, proportional set size).
RANK = 0.35 * GIB


def check(machine: Machine) -> Finding:
    if machine.memory_available is None:
        return Finding("memory", "note", "unknown", "Four ranks of the lessons need about 2 GiB.")
    found = f"{size(machine.memory_available)} free of {size(machine.memory_limit or machine.memory_total)}"
    if machine.memory_limit is not None:
        where = "container" if machine.container else "job"
        found += f" that this {where} may use (the machine has {size(machine.memory_total)})"
    ranks = int(machine.memory_available / RANK)
    why = "Each rank takes about 0.35 GiB before it computes anything."
    if ranks < 4:
        cure = f"Close other programs, or start no more than {max(1, ranks)} rank{'s' if ranks > 1 else ''}."
        if machine.memory_limit is not None:
            cure += " A larger limit: docker run --memory, or --mem of Slurm."
        return Finding("memory", "warning", found, f"{why} Without it the system kills one (-9).", cure)
    return Finding("memory", "ok", found, why)
