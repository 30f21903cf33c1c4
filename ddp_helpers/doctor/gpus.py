"""How many GPUs, and are they of one model?"""

from __future__ import annotations

from collections import Counter

from .finding import Finding
from .machine import Machine, size
from .no_gpus import explain
from .visible import mistake, numbers, same_model, visible_gpus


def check(machine: Machine) -> Finding:
    if not machine.gpus:
        return explain(machine)
    visible = visible_gpus(machine)
    wrong = mistake(machine)
    if wrong or not visible:
        return _hidden(machine, wrong)
    models = Counter(gpu.model for gpu in visible)
    found = ", ".join(f"{count} × {model}" for model, count in models.items())
    if len(models) > 1:
        return _mixed(found, numbers(same_model(visible)))
    if visible[0].memory_total:
        found += f" with {size(visible[0].memory_total)}" + (" each" if len(visible) > 1 else "")
    if len(visible) < len(machine.gpus):
        found += f" (CUDA_VISIBLE_DEVICES hides {len(machine.gpus) - len(visible)} more)"
    if len(visible) == 1:
        return Finding("GPUs", "ok", found, "One rank can use it. For several ranks the lessons use the processor.")
    return Finding("GPUs", "ok", found, "One model: no rank has to wait for a slower card.")


def _hidden(machine: Machine, wrong: str | None) -> Finding:
    count = len(machine.gpus)
    gpus = f"{count} GPU{'s' if count > 1 else ''}"
    setting = f"CUDA_VISIBLE_DEVICES={machine.cuda_visible_devices!r}"
    if wrong is None:
        return Finding(
            "GPUs",
            "warning",
            f"{gpus}, all hidden by {setting}",
            "The ranks will use the processor.",
            "Unset CUDA_VISIBLE_DEVICES before you start JupyterLab, if that is not what you want.",
        )
    left = len(visible_gpus(machine))
    return Finding(
        "GPUs",
        "warning",
        f"{gpus}, {left} of them visible: {setting}, but {wrong}",
        "CUDA drops an entry that fits no GPU, and everything after it, without a word; a GPU named twice leaves none. "
        "A container or job that was given some of a machine's GPUs counts them from 0.",
        f"Choose from {','.join(str(gpu.index) for gpu in machine.gpus)}, or unset it.",
    )


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
