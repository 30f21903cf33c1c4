"""Does anyone already hold memory of the GPUs, or compute on them?"""

from __future__ import annotations

from .finding import Finding
from .machine import Gpu, GpuProcess, Machine, size
from .visible import free_gpus, is_busy, numbers, visible_gpus

HELD = 0.1  # the share of a GPU's memory from which a holder is worth a warning


def check(machine: Machine) -> Finding:
    visible = visible_gpus(machine)
    if not visible:
        return Finding("GPU memory", "ok", "no GPU in use", "Nothing to hold.", minor=True)
    held = [gpu for gpu in visible if gpu.memory_used > HELD * gpu.memory_total or is_busy(gpu)]
    if not held:
        return Finding("GPU memory", "ok", "all but free on every GPU", "A job can have all of it.")
    return Finding(
        "GPU memory",
        "warning",
        "; ".join(_holders(gpu) for gpu in held),
        "A rank on such a GPU runs out of memory sooner, and shares its time with whoever is there.",
        _cure(machine, held, free_gpus(visible)),
    )


def _cure(machine: Machine, held: list[Gpu], free: tuple[Gpu, ...]) -> str:
    left_behind = [str(holder.pid) for gpu in held for holder in gpu.processes if holder.mine and holder.orphan]
    if left_behind:
        cure = f"If no job of yours should still run: kill {' '.join(dict.fromkeys(left_behind))}."
    elif all(gpu.processes for gpu in held):
        cure = "Ask whose it is. A notebook whose kernel still runs is the usual answer."
    elif machine.container or machine.wsl:
        cure = "A process outside is not seen from here: look with nvidia-smi on the host."
    else:
        cure = "To find it: sudo fuser -v /dev/nvidia*. Killed jobs leave such processes behind."
    return f"{cure} Until then use the free ones: CUDA_VISIBLE_DEVICES={numbers(free)}." if free else cure


def _holders(gpu: Gpu) -> str:
    who = ", ".join(_name(holder) for holder in gpu.processes) or "a process unseen from here"
    busy = f", {gpu.busy}% busy" if is_busy(gpu) else ""
    return f"GPU {gpu.index}: {size(gpu.memory_used)} of {size(gpu.memory_total)} held by {who}{busy}"


def _name(holder: GpuProcess) -> str:
    words = [holder.name]
    if holder.mine:
        words.append("yours")
    elif holder.user:
        words.append(f"of {holder.user}")
    if holder.orphan:
        words.append("whoever started it is gone")
    return f"process {holder.pid} ({', '.join(words)})"
