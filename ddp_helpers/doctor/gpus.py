"""How many GPUs, and are they of one model?"""

from __future__ import annotations

from collections import Counter

from .finding import Finding
from .machine import Machine, size
from .visible import numbers, same_model, visible_gpus


def check(machine: Machine) -> Finding:
    if not machine.gpus:
        return Finding(
            "GPUs",
            "note",
            "no NVIDIA GPU",
            "Every lesson runs without one: the ranks use the processor, and gloo carries their messages.",
        )
    visible = visible_gpus(machine)
    if not visible:
        return Finding(
            "GPUs",
            "warning",
            f"{len(machine.gpus)} GPUs, all hidden by CUDA_VISIBLE_DEVICES={machine.cuda_visible_devices!r}",
            "The ranks will use the processor.",
            "Unset CUDA_VISIBLE_DEVICES before you start JupyterLab, if that is not what you want.",
        )
    models = Counter(gpu.model for gpu in visible)
    found = ", ".join(f"{count} × {model}" for model, count in models.items())
    if len(models) > 1:
        return _mixed(found, numbers(same_model(visible)))
    found += f" with {size(visible[0].memory_total)} each"
    if len(visible) < len(machine.gpus):
        found += f" (CUDA_VISIBLE_DEVICES hides {len(machine.gpus) - len(visible)} more)"
    return Finding("GPUs", "ok", found, "One model: no rank has to wait for a slower card.")


def _mixed(found: str, group: str) -> Finding:
    return Finding(
        "GPUs",
        "warning",
        found,
        "Different models may work together, but at every step all ranks wait for the slowest card, and the smallest "
        "memory limits every rank's batch. Hangs across unlike GPUs have been reported (NVIDIA/nccl#794).",
        f"Give one job GPUs of one model: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={group}. "
        "(Without the first variable CUDA counts from the fastest card, not in this report's order.)",
    )
