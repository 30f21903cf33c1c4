"""What the NVIDIA driver says of the GPUs, through NVML: the library nvidia-smi uses. It never starts CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .machine import Gpu, Link
from .nvml_health import health
from .nvml_links import bus_id, links, nvlinks_up, text
from .nvml_processes import processes
from .pci import iommu, numa


@dataclass(frozen=True)
class GpuFacts:
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    driver: str | None = None
    driver_cuda: str | None = None
    error: str | None = None  # the driver is there but does not answer
    package: bool = True  # is nvidia-ml-py installed?
    gpu_errors: tuple[str, ...] = ()


def read_gpus() -> GpuFacts:
    """The GPUs of this machine; no GPUs and no error where there is no NVIDIA driver."""
    try:
        import pynvml
    except ImportError:
        return GpuFacts(package=False)
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
    handles, errors = _open(nvml)
    return GpuFacts(
        gpus=tuple(_gpu(nvml, index, handle) for index, handle in handles.items()),
        links=tuple(links(nvml, handles)),
        driver=text(nvml.nvmlSystemGetDriverVersion()),
        driver_cuda=_driver_cuda(nvml),
        gpu_errors=errors,
    )


def _open(nvml: Any) -> tuple[dict[int, Any], tuple[str, ...]]:
    """The handle of each GPU, by its number, and a sentence for each that cannot be opened: one lost GPU must not
    hide the others."""
    handles: dict[int, Any] = {}
    errors = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            errors.append(f"GPU {index}: {error}")
    return handles, tuple(errors)


def _driver_cuda(nvml: Any) -> str | None:
    """The newest CUDA the driver runs. NVML asks libcuda for it: None where that library is not installed, as in a
    container that was given nvidia-smi and not CUDA."""
    try:
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()  # 13010 is 13.1
    except nvml.NVMLError:
        return None
    return f"{cuda // 1000}.{cuda % 1000 // 10}"


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    total, used = _memory(nvml, handle)
    bus = bus_id(nvml, handle)
    return Gpu(
        index=index,
        model=text(nvml.nvmlDeviceGetName(handle)),
        memory_total=total,
        memory_used=used,
        numa=numa(bus),
        uuid=text(nvml.nvmlDeviceGetUUID(handle)),
        processes=processes(nvml, handle),
        nvlinks=nvlinks_up(nvml, handle),
        iommu=iommu(bus),
        **health(nvml, handle),
    )


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:  # GPUs that share the processor's memory have none to tell of
        return 0, 0
    return int(memory.total), int(memory.used)
