"""Does this torch contain code for these GPUs?"""

from __future__ import annotations

import re

from .finding import Finding
from .machine import Machine
from .visible import visible_gpus

NAME = "GPU code"


def check(machine: Machine) -> Finding:
    if not machine.torch_archs or not machine.torch_cuda:
        return Finding(NAME, "ok", "nothing to compare", "Only builds for CUDA contain code for GPUs.", minor=True)
    without = [
        gpu for gpu in visible_gpus(machine) if gpu.capability and not runs_on(machine.torch_archs, gpu.capability)
    ]
    if not without:
        return Finding(NAME, "ok", "this torch has code for every GPU here", "Kernels can start.", minor=True)
    models = sorted({f"{gpu.model} (compute capability {gpu.capability})" for gpu in without})
    have = " ".join(machine.torch_archs)
    return Finding(
        NAME,
        "problem",
        f"this torch has no code for {', '.join(models)}; it has {have}",
        "Everything looks well until the first kernel: “no kernel image is available for execution on the device”.",
        "Install torch from a build that has it: those for CUDA 12.6 still know old cards, those for CUDA 13 new ones.",
    )


def runs_on(archs: tuple[str, ...], capability: str) -> bool:
    """sm_80 runs on 8.0 and 8.6, not on 9.0 nor 7.5; compute_80 (PTX, compiled on the spot) on all from 8.0 on."""
    device = _pair(capability.replace(".", ""))
    for arch in archs:
        kind, _, number = arch.partition("_")
        code = _pair(number)
        if code <= device and (kind == "compute" or code[0] == device[0]):
            return True
    return False


def _pair(digits: str) -> tuple[int, int]:
    """`"120"` is (12, 0), `"90a"` is (9, 0)."""
    plain = re.sub(r"\D", "", digits)
    return int(plain[:-1]), int(plain[-1])
