"""Which NCCL does torch bring along? (Not: does it work. Only a collective can tell.)"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine
from .visible import visible_gpus


def check(machine: Machine) -> Finding:
    gpus = len(visible_gpus(machine))
    if machine.nccl is None:
        return _without(gpus)
    found = f"version {machine.nccl} came with torch"
    if gpus == 0:
        return Finding(
            "NCCL",
            "note",
            found,
            "It is printed even where no GPU is, so it proves nothing. NCCL needs GPUs; here gloo does its work.",
        )
    return Finding(
        "NCCL",
        "note",
        found,
        "A version does not prove that NCCL works. Only a collective that comes back with the right number does.",
        "Run a cell with an all_reduce on all your GPUs, like the first one of lesson 00.",
    )


def _without(gpus: int) -> Finding:
    if gpus >= 2:
        return Finding(
            "NCCL",
            "problem",
            "this torch was built without NCCL",
            f"{gpus} GPUs, and no way for them to work together.",
            "Install the CUDA build of torch (the default one from PyPI on Linux).",
        )
    return Finding("NCCL", "note", "this torch was built without NCCL", "Nothing here needs it: gloo does its work.")
