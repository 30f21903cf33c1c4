"""Look at the machine we run on. Nothing here initialises CUDA in this process, and nothing here needs a GPU."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from . import pci
from .cuda_start import cuda_error
from .machine import Cpu, Machine
from .nvml import GpuFacts, read_gpus
from .read_environment import container, is_wsl, kept, nccl_file, slurm
from .read_limits import limits
from .read_network import network
from .read_software import software


def this_machine() -> Machine:
    """Every fact the checks need about the machine this process runs on."""
    gpu: GpuFacts = read_gpus()
    environment = os.environ
    return Machine(
        name="this machine",
        system=platform.system(),
        python=platform.python_version(),
        wsl=is_wsl(),
        slurm=slurm(environment),
        driver=gpu.driver,
        driver_cuda=gpu.driver_cuda,
        nvml_error=gpu.error,
        nvml_package=gpu.package,
        gpu_cards=pci.count_cards(),
        gpu_errors=gpu.gpu_errors,
        cuda_error=cuda_error() if gpu.gpus and gpu.driver_cuda else None,
        cuda_visible_devices=environment.get("CUDA_VISIBLE_DEVICES"),
        container=container(environment),
        cpus=_cpus(),
        omp_num_threads=environment.get("OMP_NUM_THREADS"),
        environment=kept(environment),
        nccl_file=nccl_file(environment, Path(os.path.expanduser("~"))),
        gpus=gpu.gpus,
        links=gpu.links,
        **software(),
        **limits(),
        **network(),
    )


def _cpus() -> tuple[Cpu, ...]:
    numbers = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    root = Path("/sys/devices/system/cpu")
    nodes = _numa_of_cpus()
    found = []
    for number in numbers:
        topology = root / f"cpu{number}" / "topology"
        core = _number(topology / "core_id")
        package = _number(topology / "physical_package_id")
        found.append(Cpu(number, number if core is None else core, package or 0, nodes.get(number, 0)))
    return tuple(found)


def _numa_of_cpus() -> dict[int, int]:
    nodes: dict[int, int] = {}
    for node in Path("/sys/devices/system/node").glob("node[0-9]*/cpulist"):
        for cpu in parse_cpu_list(_text(node) or ""):
            nodes[cpu] = int(node.parent.name.removeprefix("node"))
    return nodes


def parse_cpu_list(text: str) -> list[int]:
    """The kernel's notation for sets of processors: "0-2,8" is [0, 1, 2, 8]."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path) or ""
    return int(text) if text.lstrip("-").isdigit() else None
