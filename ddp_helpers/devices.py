"""Which devices and which backend a run gets, and why. GPUs are counted through NVML: CUDA is not initialised."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Devices:
    device: str  # "cuda" or "cpu"
    backend: str  # "nccl" or "gloo"
    reason: str  # why not GPUs; empty with GPUs


def choose(nproc: int, gpus: int, torch_has_cuda: bool) -> Devices:
    """One GPU a rank with NCCL, or else all ranks on CPU with gloo: NCCL refuses two ranks on one
    GPU (unless NCCL_MULTI_RANK_GPU_ENABLE is set).

    >>> choose(4, gpus=1, torch_has_cuda=True).reason
    'this machine has 1 GPU'
    """
    if gpus and not torch_has_cuda:
        return Devices("cpu", "gloo", "the installed torch is a CPU build")
    if gpus >= nproc:
        return Devices("cuda", "nccl", "")
    return Devices("cpu", "gloo", f"this machine has {gpus or 'no'} GPU{'s' if gpus > 1 else ''}")


def count_gpus(environ: Mapping[str, str] = os.environ) -> int:
    """The GPUs that a new process would see: NVML's, less what CUDA_VISIBLE_DEVICES hides."""
    there = _nvml_count()
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    chosen: list[str] = []
    for entry in (entry.strip() for entry in visible.split(",")):
        if not (entry.startswith(("GPU-", "MIG-")) or (entry.isdigit() and int(entry) < there)):
            break  # CUDA reads up to the first entry that names no GPU
        if entry in chosen:
            return 0  # and shows none at all when one is named twice (torch.cuda._parse_visible_devices)
        chosen.append(entry)
    return min(len(chosen), there)


def _nvml_count() -> int:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


def torch_has_cuda() -> bool:
    import torch

    return torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None
