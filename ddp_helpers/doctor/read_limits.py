"""Memory, disk, and what the system or a container allows this process."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..environment import cpu_limit

CGROUP = Path("/sys/fs/cgroup")
UNLIMITED = 2**60  # cgroup v1 writes a number near 2**63 for "no limit"


def limits() -> dict[str, Any]:
    """The facts of a Machine about memory, disk and limits."""
    groups = list(own_groups())
    shm_total, shm_free = _shared_memory()
    return {
        **_memory(groups),
        "cpu_limit": min(filter(None, (cpu_limit(group) for group in groups)), default=None),
        "shm_total": shm_total,
        "shm_free": shm_free,
        "disk_free": _disk_free(Path.cwd()),
        "disk_writable": os.access(Path.cwd(), os.W_OK),
        "temp_free": _temp_free(),
        "open_files": _ulimit("RLIMIT_NOFILE"),
        "processes_limit": _processes_limit(groups),
        "locked_memory": _ulimit("RLIMIT_MEMLOCK"),
        "infiniband": any(Path("/sys/class/infiniband").glob("*")),
    }


def own_groups(root: Path = CGROUP, process: Path = Path("/proc/self/cgroup")) -> Iterator[Path]:
    """The control groups (v2) this process is in, from its own up to the root; a limit on any of them counts.

    A container sees itself as the root. A Slurm job or a user's session on the machine itself does not."""
    path = ""
    for line in _text(process).splitlines():
        if line.startswith("0::"):
            path = line.removeprefix("0::").strip("/")
    group = root / path
    while group != root and root in group.parents:
        yield group
        group = group.parent
    yield root


def memory_limit(groups: list[Path]) -> tuple[int | None, int]:
    """The tightest limit, and the memory that is used under it and cannot be had back."""
    found = []
    for group in groups:
        limit, used, cache = _number(group / "memory.max"), _number(group / "memory.current"), "inactive_file"
        if limit is None:  # version 1
            group = group / "memory"
            limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
            cache = "total_inactive_file"
        if limit is not None and limit < UNLIMITED:
            found.append((limit, max(0, (used or 0) - _line(group / "memory.stat", cache))))
    return min(found, key=lambda pair: pair[0] - pair[1], default=(None, 0))


def _memory(groups: list[Path]) -> dict[str, int | None]:
    try:
        import psutil
    except ImportError:
        return {}
    memory = psutil.virtual_memory()
    limit, used = memory_limit(groups)
    if limit is None or limit >= memory.total:
        return {"memory_total": memory.total, "memory_available": memory.available}
    available = max(0, min(memory.available, limit - used))
    return {"memory_total": memory.total, "memory_available": available, "memory_limit": limit}


def _shared_memory() -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:  # macOS and Windows have none
        return None, None
    return usage.total, usage.free


def _disk_free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _temp_free() -> int | None:
    try:
        return _disk_free(Path(tempfile.gettempdir()))
    except FileNotFoundError:  # Python found no folder for temporary files that it may write to
        return 0


def _ulimit(name: str) -> int | None:
    """The soft limit; None without one."""
    if sys.platform == "win32":
        return None
    import resource

    value = resource.getrlimit(getattr(resource, name))[0]
    return None if value == resource.RLIM_INFINITY else value


def _processes_limit(groups: list[Path]) -> int | None:
    allowed = [_number(group / name) for group in groups for name in ("pids.max", "pids/pids.max")]
    if sys.platform != "win32" and os.getuid() != 0:  # root is exempt from this one
        allowed.append(_ulimit("RLIMIT_NPROC"))
    return min((limit for limit in allowed if limit is not None), default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", or where there is no such file."""
    text = _text(path)
    return int(text) if text.isdigit() else None


def _line(path: Path, name: str) -> int:
    """`name 123` in memory.stat is 123."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0
