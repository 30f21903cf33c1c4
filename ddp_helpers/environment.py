"""The environment variables of a run: the kernel's own, edited; ``os.environ`` itself is never touched."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .devices import Devices

RUN_MARK = "DDP_HELPERS_RUN"  # in the environment of all that a run starts: finds what left its rank's session
SUBJECT = "DDP_HELPERS_SUBJECT"  # read by worker.py
# Left by a launcher, by Jupyter or by torchrun's own environment options: none of it is this run's.
DROPPED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK")
DROPPED_PREFIXES = ("JPY_", "MASTER_", "TORCHELASTIC_", "PET_", "ROLE_")
# Read once, while a package is imported: a warm parent that was started with other values cannot serve the run.
READ_AT_IMPORT = ("TORCH", "PYTORCH", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NPY_", "PYTHON", "LD_", "CUDA_M")
# … but for what torch reads when it is needed, such as the cache folder, which it sets itself in a kernel that makes an
# optimizer,
READ_WHEN_NEEDED = ("TORCH_DIST_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_ELASTIC_", "TORCHINDUCTOR_CACHE_DIR")
# and for what fresh.py can set in the fork.
SET_AFTERWARDS = ("TORCH_DISTRIBUTED_DEBUG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONPATH")


def rank_environment(
    devices: Devices,
    nproc: int,
    extra: Mapping[str, str],
    base: Mapping[str, str],
    platform: str = sys.platform,
    cores: int | None = None,
) -> dict[str, str]:
    """The environment of a run's agent and ranks.

    >>> from ddp_helpers.devices import Devices
    >>> rank_environment(Devices("cpu", "gloo", ""), 2, {}, {"RANK": "0", "HOME": "/h"}, cores=8)["OMP_NUM_THREADS"]
    '4'

    `extra` is what the user gave for this run and wins over everything. `base` is the kernel's environment. Threads
    per rank: the cores this process may use, divided by the ranks of a node, unless the user set OMP_NUM_THREADS
    (torchrun itself sets 1, with a banner).
    """
    env = {k: v for k, v in base.items() if k not in DROPPED and not k.startswith(DROPPED_PREFIXES)}
    env.update(
        MPLBACKEND="Agg",  # the kernel's inline backend needs a kernel
        TORCH_ELASTIC_SHUTDOWN_TIMEOUT="2",  # torchrun's 30 s for ranks that ignore SIGTERM are long in a notebook
        PYTHONUNBUFFERED="1",
        PYTHONFAULTHANDLER="1",
        PYTHONIOENCODING="utf-8",
    )
    env.setdefault("OMP_NUM_THREADS", str(max(1, (cores or usable_cores()) // nproc)))
    loopback = "lo0" if platform == "darwin" else "lo"
    if devices.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    if platform == "win32":
        env.setdefault("USE_LIBUV", "0")  # the Windows wheels are built without it (pytorch#139990)
        env.setdefault("PYTHONUTF8", "1")
    else:
        env.setdefault("GLOO_SOCKET_IFNAME", loopback)
        env.setdefault("NCCL_SOCKET_IFNAME", loopback)
    env.update(extra)
    return env


def usable_cores() -> int:
    """The cores that this process may use, by its affinity and by its container's quota; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cpu_limit()
    return cores if limit is None else min(cores, max(1, int(limit)))


def cpu_limit(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """How many cores' worth of time the container may use (cgroup v2's cpu.max, v1's cpu.cfs_quota_us), or None."""
    quota, _, period = _text(root / "cpu.max").partition(" ")
    if not quota:
        quota, period = _text(root / "cpu/cpu.cfs_quota_us"), _text(root / "cpu/cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period):  # without a limit: "max", or -1
        return int(quota) / int(period)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def import_time_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a process reads only once, while it imports its packages."""
    later = (*SET_AFTERWARDS, *READ_WHEN_NEEDED, *DROPPED_PREFIXES)
    return {k: v for k, v in env.items() if k.startswith(READ_AT_IMPORT) and not k.startswith(later)}


def is_read_by_imports(name: str) -> bool:
    """Whether a script must set this variable before its imports, as in ``os.environ["OMP_NUM_THREADS"] = "1"``."""
    return name.startswith((*READ_AT_IMPORT, "OMP_")) and not name.startswith((*READ_WHEN_NEEDED, *DROPPED_PREFIXES))
