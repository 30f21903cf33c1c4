"""What is measured: the names that stand in every line of the CSV."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

NOT_A_GPU = "CPU rehearsal, no GPU figure"


@dataclass(frozen=True)
class Hardware:
    name: str
    driver: str
    torch: str
    gpus: int

    @staticmethod
    def read(text: str) -> Hardware:
        return Hardware(**json.loads(text))


def look(cpu: bool) -> Hardware:
    """The machine's names. This starts CUDA, so it runs in a process of its own."""
    import torch

    version = torch.__version__
    if cpu:
        return Hardware(f"{NOT_A_GPU} ({_cpu_model()})", "", version, 0)
    models = Counter(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    name = " + ".join(f"{count}x {model}" if count > 1 else model for model, count in models.items())
    if torch.cuda.is_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else "none"
        version += f" (CUDA {torch.version.cuda}, NCCL {nccl}, cuDNN {torch.backends.cudnn.version()})"
    return Hardware(name, _driver(), version, torch.cuda.device_count() if torch.cuda.is_available() else 0)


def write(path: Path, cpu: bool) -> None:
    path.write_text(json.dumps(asdict(look(cpu))), encoding="utf-8")


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _driver() -> str:
    """nvidia-smi's answer; where there is none, the kernel module's, which a container may see without it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()
        return said[0] if said else "unknown"
    except (OSError, subprocess.SubprocessError):
        module = "/sys/module/nvidia/version"
        return Path(module).read_text(encoding="utf-8").strip() if os.path.exists(module) else "unknown"
