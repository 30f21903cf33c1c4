"""Does anyone already hold memory of the GPUs?"""

from __future__ import annotations

from .finding import Finding
from .machine import Gpu, Machine, size
from .visible import free_gpus, numbers, visible_gpus

HELD = 0.1  # the share of a GPU's memory from which a holder is worth a warning


def check(machine: Machine) -> Finding:
    visible = visible_gpus(machine)
    if not visible:
        return Finding("GPU memory", "ok", "no GPU in use", "Nothing to hold.")
    held = [gpu for gpu in visible if gpu.memory_used > HELD * gpu.memory_total]
    if not held:
        return Finding("GPU memory", "ok", "all but free on every GPU", "A job can have all of it.")
    free = free_gpus(visible)
    return Finding(
        "GPU memory",
        "warning",
        "; ".join(_holders(gpu) for gpu in held),
        "A rank on such a GPU runs out of memory sooner, and shares its time with whoever is there.",
        f"Ask whose it is, and until then use the free ones: CUDA_VISIBLE_DEVICES={numbers(free)}."
        if free
        else "Ask whose it is. A notebook whose kernel still runs is the usual answer.",
    )


def _holders(gpu: Gpu) -> str:
    who = ", ".join(f"process {holder.pid} ({holder.name})" for holder in gpu.processes) or "a process unseen from here"
    return f"GPU {gpu.index}: {size(gpu.memory_used)} of {size(gpu.memory_total)} held by {who}"
