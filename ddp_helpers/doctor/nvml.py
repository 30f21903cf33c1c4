"""What the NVIDIA driver says of the GPUs, through NVML: the library nvidia-smi uses. It never starts CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .machine import Gpu, GpuProcess, Link


@dataclass(frozen=True)
class GpuFacts:
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    driver: str | None = None
    driver_cuda: str | None = None
    error: str | None = None  # the driver is there but does not answer


def read_gpus() -> GpuFacts:
    """The GPUs of this machine; no GPUs and no error where there is no NVIDIA driver."""
    try:
        import pynvml
    except ImportError:
        return GpuFacts()
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return GpuFacts()
    except pynvml.NVMLError as error:
        return GpuFacts(error=str(error))
    try:
        return _ask(pynvml)
    except pynvml.NVMLError as error:
        return GpuFacts(error=str(error))
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any) -> GpuFacts:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    links = [
        Link(a, b, _kind(nvml, handles[a], handles[b]), _peer(nvml, handles[a], handles[b]))
        for a in range(len(handles))
        for b in range(a + 1, len(handles))
    ]
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()  # 13010 is 13.1
    return GpuFacts(
        gpus=tuple(_gpu(nvml, index, handle) for index, handle in enumerate(handles)),
        links=tuple(links),
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        driver_cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory_total=int(memory.total),
        memory_used=int(memory.used),
        numa=_numa(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        processes=_processes(nvml, handle),
    )


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:  # not supported by every card
        return ()
    return tuple(GpuProcess(p.pid, _process_name(p.pid), p.usedGpuMemory) for p in running)


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # another container's, or already gone
        return "unknown"


def _kind(nvml: Any, a: Any, b: Any) -> str:
    lanes = _nvlinks(nvml, a, b)
    if lanes:
        return f"NV{lanes}"
    names = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
    }
    try:
        return names.get(nvml.nvmlDeviceGetTopologyCommonAncestor(a, b), "SYS")
    except nvml.NVMLError:
        return "SYS"


def _nvlinks(nvml: Any, a: Any, b: Any) -> int:
    """NVLinks from `a` to `b`: those that end at `b`, or else, when both hang on NVLink switches, all that `a` has."""
    other = _text(nvml.nvmlDeviceGetPciInfo(b).busId)
    ends = _nvlink_ends(nvml, a)
    direct = sum(1 for kind, bus in ends if kind == nvml.NVML_NVLINK_DEVICE_TYPE_GPU and bus == other)
    switch = nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    through = sum(1 for kind, _ in ends if kind == switch)
    return direct or (through if any(kind == switch for kind, _ in _nvlink_ends(nvml, b)) else 0)


def _nvlink_ends(nvml: Any, handle: Any) -> list[tuple[int, str]]:
    ends = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link):
                kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
                ends.append((kind, _text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)))
        except nvml.NVMLError:  # this card has fewer links, or none
            continue
    return ends


def _peer(nvml: Any, a: Any, b: Any) -> bool | None:
    read = 0  # pynvml 13 has NVML_P2P_CAPS_INDEX_READ = (0,), a stray comma that ctypes would refuse
    try:
        status = nvml.nvmlDeviceGetP2PStatus(a, b, read)
    except nvml.NVMLError:
        return None
    return bool(status == nvml.NVML_P2P_STATUS_OK)


def _numa(bus: str) -> int | None:
    # The kernel writes the PCI domain with four digits, NVML with eight.
    domain, _, rest = bus.lower().partition(":")
    path = Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    try:
        node = int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
