"""Is a variable left in the environment that changes what a job does?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .finding import LEVELS, Finding
from .machine import Machine
from .visible import visible_gpus

NAME = "environment"


@dataclass(frozen=True)
class Left:
    """One variable that somebody may have forgotten."""

    name: str
    value: str
    level: str
    why: str
    in_file: bool = False  # in a file of NCCL's, not in the environment


# Variables of NCCL that matter as soon as two GPUs work together: (name, values or None for any, level, why).
NCCL = (
    ("NCCL_P2P_DISABLE", ("1",), "warning", "GPUs no longer read each other's memory directly."),
    ("NCCL_P2P_LEVEL", ("LOC", "0"), "warning", "GPUs no longer read each other's memory directly."),
    ("NCCL_SHM_DISABLE", ("1",), "warning", "Within the machine, messages go through the network code."),
    ("NCCL_IB_DISABLE", ("1",), "note", "Between machines InfiniBand and RoCE stay unused."),
    ("NCCL_ALGO", None, "warning", "NCCL no longer chooses the algorithm for itself."),
    ("NCCL_PROTO", None, "warning", "NCCL no longer chooses the protocol for itself."),
)
DETAIL = (
    "Every collective is checked by another one, which is slow; and with gloo, DDP crashed without a word (exit code "
    "-11, torch 2.14)."
)
BLOCKING = "The processor waits for every kernel; communication no longer overlaps with computing."
RANK = "A script started with plain python takes itself for one of several ranks, and waits for the others."


def check(machine: Machine) -> Finding:
    left = [*_of_torch(machine), *_of_nccl(machine), *_interfaces(machine)]
    if not left:
        return Finding(NAME, "ok", "no variable that changes a job", "Nothing is left from an experiment.", minor=True)
    return Finding(
        NAME,
        max((item.level for item in left), key=LEVELS.index),
        ", ".join(f"{item.name}={item.value}" for item in left),
        " ".join(dict.fromkeys(f"{item.name}: {item.why}" for item in left)),
        _cure(left),
    )


def _cure(left: list[Left]) -> str:
    names = " ".join(item.name for item in left if not item.in_file)
    steps = []
    if names:
        steps.append(
            f"Left from an experiment? unset {names}, and start JupyterLab anew. Such lines stand in ~/.bashrc, a job "
            "script or the image."
        )
    if any(item.in_file for item in left):
        steps.append("NCCL reads /etc/nccl.conf and ~/.nccl.conf: look there.")
    return " ".join(steps)


def _of_torch(machine: Machine) -> Iterator[Left]:
    environment = machine.environment
    debug = environment.get("TORCH_DISTRIBUTED_DEBUG", "")
    if debug.upper() == "DETAIL":
        yield Left("TORCH_DISTRIBUTED_DEBUG", debug, "warning", DETAIL)
    if environment.get("CUDA_LAUNCH_BLOCKING") == "1" and visible_gpus(machine):
        yield Left("CUDA_LAUNCH_BLOCKING", "1", "warning", BLOCKING)
    if machine.slurm == "job" or machine.container == "Kubernetes":
        return  # there these are set on purpose
    if "RANK" in environment and environment.get("WORLD_SIZE", "1") != "1":
        for name in ("RANK", "WORLD_SIZE"):
            yield Left(name, environment[name], "warning", RANK)
    for name, value in environment.items():
        if name.startswith("PET_"):
            yield Left(name, value, "note", "torchrun takes it for its option of that name.")


def _of_nccl(machine: Machine) -> Iterator[Left]:
    if len(visible_gpus(machine)) < 2:
        return
    for in_file, settings in ((False, machine.environment), (True, machine.nccl_file)):
        for name, values, level, why in NCCL:
            value = settings.get(name)
            if value is not None and (values is None or value.upper() in values):
                yield Left(name, value, level, why, in_file)


def _interfaces(machine: Machine) -> Iterator[Left]:
    """A network interface that is named and not there: nothing can start."""
    if not machine.interfaces:
        return
    gloo = machine.environment.get("GLOO_SOCKET_IFNAME")
    if gloo and not set(gloo.split(",")) <= set(machine.interfaces):
        yield Left("GLOO_SOCKET_IFNAME", gloo, "problem", _absent(machine, "gloo"))
    if len(visible_gpus(machine)) < 2:
        return
    for in_file, settings in ((False, machine.environment), (True, machine.nccl_file)):
        wanted = settings.get("NCCL_SOCKET_IFNAME")
        if wanted and not _nccl_finds(wanted, machine.interfaces):
            yield Left("NCCL_SOCKET_IFNAME", wanted, "problem", _absent(machine, "NCCL"), in_file)


def _absent(machine: Machine, who: str) -> str:
    return f"{who} finds no such interface here ({', '.join(machine.interfaces)}), and gives up."


def _nccl_finds(wanted: str, interfaces: tuple[str, ...]) -> bool:
    """NCCL takes beginnings of names; after "=" whole names; after "^" all but those."""
    if wanted.startswith("^"):
        return True
    exact = wanted.startswith("=")
    names = wanted.lstrip("=").split(",")
    return any(own == name or (not exact and own.startswith(name)) for name in names for own in interfaces)
