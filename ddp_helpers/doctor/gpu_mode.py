"""Are the GPUs set up for one rank each? (MIG, compute mode.)"""

from __future__ import annotations

from .finding import Finding
from .machine import Gpu, Machine
from .visible import numbers, visible_gpus

NAME = "GPU mode"


def check(machine: Machine) -> Finding:
    visible = visible_gpus(machine)
    prohibited = _with_mode(visible, "prohibited")
    if prohibited:
        return Finding(
            NAME,
            "problem",
            f"GPU {numbers(prohibited)}: compute mode “prohibited”",
            "No program may compute on it.",
            f"sudo nvidia-smi -i {numbers(prohibited)} -c DEFAULT",
        )
    split = tuple(gpu for gpu in visible if gpu.mig)
    if split:
        return _split(split)
    exclusive = _with_mode(visible, "exclusive")
    if exclusive:
        return Finding(
            NAME,
            "note",
            f"GPU {numbers(exclusive)}: one process at a time (compute mode “exclusive”)",
            "A notebook that has used a GPU keeps it: a rank there fails with “CUDA-capable device(s) is/are busy or "
            "unavailable”.",
            "Let the notebook itself never touch CUDA, only its ranks; or sudo nvidia-smi -c DEFAULT.",
        )
    return Finding(NAME, "ok", "every GPU whole and open to all", "Nothing to set.", minor=True)


def _split(split: tuple[Gpu, ...]) -> Finding:
    return Finding(
        NAME,
        "warning",
        f"GPU {numbers(split)}: split into instances (MIG)",
        "A process sees one instance, and instances cannot read each other's memory. NCCL was not made for them "
        "(support is experimental, NVIDIA/nccl#1716).",
        f"Use one instance with one rank, and the processor for several. For whole GPUs: sudo nvidia-smi -i "
        f"{numbers(split)} -mig 0.",
    )


def _with_mode(gpus: tuple[Gpu, ...], mode: str) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in gpus if gpu.compute_mode == mode)
