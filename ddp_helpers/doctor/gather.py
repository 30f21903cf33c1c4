"""Look at the machine we run on. Nothing here initialises CUDA, and nothing here needs a GPU."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from pathlib import Path

from ..environment import cpu_limit
from .machine import Cpu, Machine
from .nvml import GpuFacts, read_gpus


def this_machine() -> Machine:
    """Every fact the checks need about the machine this process runs on."""
    gpu: GpuFacts = read_gpus()
    torch_version, torch_cuda, nccl = _torch()
    memory_total, memory_available = _memory()
    shm_total, shm_free = _shared_memory()
    hostname = socket.gethostname()
    return Machine(
        name="this machine",
        system=platform.system(),
        python=platform.python_version(),
        torch=torch_version,
        torch_cuda=torch_cuda,
        nccl=nccl,
        driver=gpu.driver,
        driver_cuda=gpu.driver_cuda,
        nvml_error=gpu.error,
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        container=_container(),
        cpus=_cpus(),
        cpu_limit=cpu_limit(),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
        memory_total=memory_total,
        memory_available=memory_available,
        shm_total=shm_total,
        shm_free=shm_free,
        hostname=hostname,
        address=_resolve(hostname),
        free_port=_can_listen(0),
        port_29500_free=_can_listen(29500),
        gpus=gpu.gpus,
        links=gpu.links,
    )


def _torch() -> tuple[str | None, str | None, str | None]:
    """torch's version, the CUDA version of its build, and the NCCL version it prints."""
    try:
        import torch
    except ImportError:
        return None, None, None
    try:
        # Reads a constant of the library: it answers without any GPU and touches none.
        nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
    except AttributeError:  # a CPU build, or macOS and Windows: torch without NCCL
        nccl = None
    return str(torch.__version__), torch.version.cuda, nccl


def _memory() -> tuple[int | None, int | None]:
    try:
        import psutil
    except ImportError:
        return None, None
    memory = psutil.virtual_memory()
    return memory.total, memory.available


def _shared_memory() -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:  # macOS and Windows have none
        return None, None
    return usage.total, usage.free


def _resolve(hostname: str) -> str | None:
    try:
        return socket.gethostbyname(hostname)
    except (OSError, UnicodeError):
        return None


def _can_listen(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


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


def _container() -> str | None:
    if Path("/.dockerenv").exists():
        return "Docker"
    if Path("/run/.containerenv").exists():
        return "Podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes"
    for marker in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if marker in os.environ:
            return "Apptainer"
    return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path) or ""
    return int(text) if text.lstrip("-").isdigit() else None
