"""How many ranks to start on a machine, and why."""

from __future__ import annotations

from dataclasses import dataclass

from .machine import Machine
from .visible import free_gpus, same_model, visible_gpus


@dataclass(frozen=True)
class Advice:
    """Start `.ranks` ranks on `.device` ("cuda" or "cpu") with `.backend`; `.why` says why."""

    ranks: int
    device: str
    backend: str
    why: str


def advise(machine: Machine) -> Advice:
    """One rank a GPU where there are two or more fit for it; otherwise a few ranks on the processor."""
    visible = visible_gpus(machine)
    usable = same_model(free_gpus(visible))
    if len(usable) >= 2 and machine.torch_cuda:
        return Advice(len(usable), "cuda", "nccl", _why_gpus(len(visible), len(usable)))
    return Advice(*_on_cpu(machine, len(visible)))


def _why_gpus(visible: int, usable: int) -> str:
    if usable == visible:
        return f"One rank a GPU: {usable} GPUs of one model. NCCL refuses two ranks on one GPU, unless told otherwise."
    return (
        f"One rank a GPU, and the largest free group of one model: {usable} of the {visible} GPUs. "
        "All ranks wait for the slowest at every step, so a slower card would set the pace."
    )


def _on_cpu(machine: Machine, gpus: int) -> tuple[int, str, str, str]:
    cores = machine.cores if machine.cpu_limit is None else min(machine.cores, max(1, int(machine.cpu_limit)))
    ranks = min(4, max(2, cores))
    if gpus == 1:
        reason = "One GPU holds one rank, which is nothing to learn from; on the processor "
    elif gpus:
        reason = f"Fewer than two of the {gpus} GPUs are free and of one model (see above); on the processor "
    else:
        reason = "Without a GPU "
    reason += f"two ranks already show every idea. This machine gives you {cores} core{'s' if cores > 1 else ''}: "
    if ranks <= cores:
        reason += "that many ranks each have a core of their own. More give the same results, only more slowly."
    else:
        reason += "the ranks take turns, which changes their speed and not their results."
    return ranks, "cpu", "gloo", reason
