"""Does the system allow enough open files, processes and locked memory?"""

from __future__ import annotations

from .finding import Finding
from .machine import GIB, Machine, size

NAME = "limits"
FILES = 1024  # Linux's own default. (macOS gives 256, but there torch shares tensors in another way by default.)
PROCESSES = 256  # threads count: JupyterLab, a kernel and four ranks with their loaders come to more than a hundred


def check(machine: Machine) -> Finding:
    if machine.processes_limit is not None and machine.processes_limit < PROCESSES:
        return Finding(
            NAME,
            "warning",
            f"{machine.processes_limit} processes and threads at most",
            "Every thread counts, those of JupyterLab, of the ranks and of their loaders. Beyond the limit: “Resource "
            "temporarily unavailable”, “can't start new thread”.",
            "ulimit -u, docker run --pids-limit, or the administrator. Until then OMP_NUM_THREADS=1 and num_workers=0.",
        )
    few_files = machine.open_files is not None and machine.open_files < FILES
    if few_files and machine.system == "Linux":
        return Finding(
            NAME,
            "warning",
            f"{machine.open_files} open files at most",
            "DataLoader workers hand each tensor over as an open file: “Too many open files”.",
            f"ulimit -n {4 * FILES} in the terminal, before JupyterLab is started there.",
        )
    if machine.infiniband and machine.locked_memory is not None and machine.locked_memory < GIB:
        return Finding(
            NAME,
            "note",
            f"InfiniBand, but only {size(machine.locked_memory)} of locked memory",
            "It matters between machines: NCCL registers memory with the network card, which fails beyond the limit.",
            "ulimit -l unlimited, or docker run --ulimit memlock=-1.",
        )
    return Finding(NAME, "ok", "enough open files and processes", "No limit is in the way.", minor=True)
