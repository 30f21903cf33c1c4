"""The doctor on a machine with GPUs: what NVML says must be what torch says."""

from __future__ import annotations

import os

import torch

from .lab import Lab

OF_GPUS = ("software", "GPUs", "driver", "GPU code", "GPU health", "GPU mode", "NCCL")


def doctor_through_nvml(lab: Lab) -> None:
    from ddp_helpers import doctor

    report = doctor()
    clean = not torch.cuda.is_initialized()
    for finding in report.findings:
        lab.measured("doctor()", finding.name, finding.level, "level", finding.found)
    advice = report.advice
    lab.measured("doctor()", "ranks to start", advice.ranks, "ranks", f"{advice.device} with {advice.backend}")
    lab.claim("00", "doctor() does not start CUDA in its own process", clean)
    of_gpus = [finding.name for finding in report.problems if finding.name in OF_GPUS]
    lab.claim("00", "where torch works, the doctor finds no problem with the GPUs", not of_gpus, report.summary())
    _compare(lab, report.machine.gpus)
    lab.claim(
        "00", "the driver and its newest CUDA are read", bool(report.machine.driver_cuda), str(report.machine.driver)
    )
    lab.claim("00", "CUDA starts in a process of its own", report.machine.cuda_error is None)


def _compare(lab: Lab, gpus: tuple) -> None:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") is not None
    count = torch.cuda.device_count()
    if not hidden or not lab.on_gpu:
        lab.claim("00", "NVML counts as many GPUs as torch", len(gpus) == count, f"{len(gpus)} and {count}")
    by_nvml = {gpu.model for gpu in gpus}
    by_torch = {torch.cuda.get_device_name(number) for number in range(count)}
    lab.claim("00", "NVML and torch name the GPUs alike", by_torch <= by_nvml, f"{by_nvml} and {by_torch}")
    for gpu in gpus:
        about = f"busy {gpu.busy} %, NVLinks {gpu.nvlinks}, fabric {gpu.fabric}, MIG {gpu.mig}, slowdown {gpu.slowdown}"
        lab.measured("NVML", f"memory of GPU {gpu.index}", gpu.memory_total / 2**30, "GiB", about)
        lab.measured("NVML", f"processes on GPU {gpu.index}", len(gpu.processes), "processes")
    if gpus and count and not hidden:
        capability = ".".join(map(str, torch.cuda.get_device_capability(0)))
        models = {gpu.capability for gpu in gpus}
        lab.claim(
            "00", "NVML and torch name the same compute capability", capability in models, f"{models}, {capability}"
        )
