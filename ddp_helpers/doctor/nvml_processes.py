"""Who uses a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .machine import GpuProcess

# Who takes over a process whose parent is gone. (In a container the first process is often the job's own parent.)
INITS = ("systemd", "init")


def processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:  # not supported by every card, nor under WSL
        return ()
    return tuple(describe(p.pid, p.usedGpuMemory) for p in running)


def describe(pid: int, memory: int | None) -> GpuProcess:
    """The holder with its name and owner. In a container the driver's number may be that of a process outside:
    whoever we can look into and finds no CUDA in is not named, so that nobody ends the wrong one."""
    unknown = GpuProcess(pid, "unknown", memory)
    try:
        import psutil
    except ImportError:
        return unknown
    try:
        process = psutil.Process(pid)
        name, user = process.name(), process.username()
        mine = user == psutil.Process().username()
        if mine and not _uses_cuda(pid):
            return unknown
        parent = process.parent()
        return GpuProcess(pid, name, memory, user, mine, orphan=parent is not None and parent.name() in INITS)
    except psutil.Error:  # gone, or another container's
        return unknown


def _uses_cuda(pid: int) -> bool:
    """False only where the process can be looked into and has not loaded the CUDA driver."""
    try:
        return "libcuda.so" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
