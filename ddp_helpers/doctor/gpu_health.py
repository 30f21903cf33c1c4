"""Does the driver itself report a sick GPU?"""

from __future__ import annotations

from .finding import Finding
from .machine import Gpu, Machine
from .visible import visible_gpus

NAME = "GPU health"
ACTIONS = {
    "reset": "the driver asks for a reset of it",
    "reboot": "the driver asks for a reboot",
    "drain": "the driver asks to end all jobs on it and reset it",
}
BRAKES = {
    "heat": "it is too hot and slows down",
    "power": "its power supply tells it to slow down",
}


def check(machine: Machine) -> Finding:
    severe = list(machine.gpu_errors)
    slight = []
    for gpu in visible_gpus(machine):
        severe += _severe(gpu)
        slight += _slight(gpu)
    if severe:
        return Finding(
            NAME,
            "problem",
            "; ".join([*severe, *slight]),
            "A job on it dies or hangs, and takes all other ranks along.",
            "Leave it out (CUDA_VISIBLE_DEVICES), and tell the administrator: sudo nvidia-smi --gpu-reset, a reboot, "
            "or a new card. The kernel's log (sudo dmesg) says more in lines with Xid.",
        )
    if slight:
        return Finding(
            NAME,
            "warning",
            "; ".join(slight),
            "A wrong bit ends a job; a slow card slows all ranks, which wait for each other at every step.",
            "Look at nvidia-smi -q. Errors: a reset when nobody computes. Heat and power: fans, dust, cables.",
        )
    return Finding(NAME, "ok", "the driver reports no trouble", "No errors, no brakes.", minor=True)


def _severe(gpu: Gpu) -> list[str]:
    found = [f"GPU {gpu.index}: {ACTIONS[gpu.recovery]}"] if gpu.recovery in ACTIONS else []
    if gpu.remap == "failed":
        found.append(f"GPU {gpu.index}: faulty memory could not be replaced by spare rows")
    return found


def _slight(gpu: Gpu) -> list[str]:
    found = []
    if gpu.ecc_errors:
        found.append(f"GPU {gpu.index}: {gpu.ecc_errors} memory errors that could not be corrected")
    if gpu.remap == "pending":
        found.append(f"GPU {gpu.index}: faulty memory waits for a reset to be replaced")
    if gpu.slowdown in BRAKES:
        found.append(f"GPU {gpu.index}: {BRAKES[gpu.slowdown]}")
    return found
