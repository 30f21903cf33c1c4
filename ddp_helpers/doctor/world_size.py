"""How many ranks to start on a machine, and why."""

from __future__ import annotations

from dataclasses import dataclass

from . import architecture, driver, gpu_mode
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
    obstacle = _obstacle(machine) if visible else None
    if len(usable) >= 2 and obstacle is None:
        return Advice(len(usable), "cuda", "nccl", _why_gpus(len(visible), len(usable)))
    return Advice(*_on_cpu(machine, len(visible), obstacle))


def _obstacle(machine: Machine) -> str | None:
    """The name of the line that says why no job can use these GPUs."""
    for finding in (driver.check(machine), architecture.check(machine), gpu_mode.check(machine)):
        if finding.level in ("warning", "problem"):
            return finding.name
    return None


def _why_gpus(visible: int, usable: int) -> str:
    if usable == visible:
        return f"One rank a GPU: {usable} GPUs of one model. NCCL refuses two ranks on one GPU, unless told otherwise."
    return (
        f"One rank a GPU, and the largest free group of one model: {usable} of the {visible} GPUs. "
        "All ranks wait for the slowest at every step, so a slower card would set the pace."
    )


def _on_cpu(machine: Machine, gpus: int, obstacle: str | None) -> tuple[int, str, str, str]:
    cores = machine.cores_of_time
    ranks = min(4, max(2, cores))
    if obstacle:
        reason = f"As things are, the GPUs cannot be used for this (see {obstacle}); on the processor "
    elif gpus == 1:
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
