"""What was left in the environment, and where we are: a container, WSL, a Slurm job."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

# Variables that change what a job does. Nothing else of the environment is kept: it may hold secrets.
PREFIXES = ("NCCL_", "TORCH_NCCL_", "PET_")
NAMES = (
    "TORCH_DISTRIBUTED_DEBUG",
    "CUDA_LAUNCH_BLOCKING",
    "GLOO_SOCKET_IFNAME",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
# Where the configuration of a cluster lies; the commands alone are in many images.
SLURM_FILES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environment.items())
        if value and (name in NAMES or name.startswith(PREFIXES))
    }


def nccl_file(environment: Mapping[str, str], home: Path, system: Path = Path("/etc")) -> dict[str, str]:
    """What NCCL's own files set: those that nobody remembers. The environment wins over them, as in NCCL, and the
    user's file over the system's."""
    own = environment.get("NCCL_CONF_FILE")
    files = (system / "nccl.conf", Path(own) if own else home / ".nccl.conf")
    settings = {name: value for file in files for name, value in _pairs(file)}
    return {name: value for name, value in settings.items() if name not in environment}


def _pairs(file: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip().startswith("NCCL_"):
            yield name.strip(), value.strip()


def container(environment: Mapping[str, str]) -> str | None:
    if "KUBERNETES_SERVICE_HOST" in environment:  # before Docker: a pod may have its mark as well
        return "Kubernetes"
    if Path("/.dockerenv").exists():
        return "Docker"
    if Path("/run/.containerenv").exists():
        return "Podman"
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "Apptainer"
    return None


def is_wsl() -> bool:
    return platform.system() == "Linux" and "microsoft" in platform.release().lower()


def slurm(environment: Mapping[str, str]) -> str | None:
    if "SLURM_JOB_ID" in environment:
        return "job"
    configured = "SLURM_CONF" in environment or any(Path(file).exists() for file in SLURM_FILES)
    return "login" if configured and shutil.which("sbatch") else None
