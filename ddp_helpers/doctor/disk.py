"""Can the scripts and logs of a run be written?"""

from __future__ import annotations

from .finding import Finding
from .machine import GIB, MIB, Machine, size

NAME = "disk"
FULL = 100 * MIB
LITTLE = GIB


def check(machine: Machine) -> Finding:
    if not machine.disk_writable:
        return Finding(
            NAME,
            "warning",  # in a terminal it may not be the folder of the notebooks
            "this folder cannot be written to",
            "Cells write their scripts and logs beside the notebook: those of a notebook in this folder fail.",
            "Copy the notebooks to a folder of your own.",
        )
    here, temporary = machine.disk_free, machine.temp_free
    if here is not None and here < FULL:
        return _full(f"{size(here)} free in this folder", "problem")
    if temporary is not None and temporary < FULL:
        return _full(f"{size(temporary)} free for temporary files", "problem")
    if here is not None and here < LITTLE:
        return _full(f"{size(here)} free in this folder", "warning")
    return Finding(NAME, "ok", "room for scripts and logs", "Runs can be written.", minor=True)


def _full(found: str, level: str) -> Finding:
    return Finding(
        NAME,
        level,
        found,
        "Runs write scripts, logs and checkpoints there. “No space left on device” need not mean /dev/shm.",
        "Make room: python -m ddp_helpers clean removes old runs. For temporary files, TMPDIR names another folder.",
    )
