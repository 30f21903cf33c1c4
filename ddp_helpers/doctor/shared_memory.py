"""Is /dev/shm large enough for DataLoader workers (and for NCCL)?"""

from __future__ import annotations

from .finding import Finding
from .machine import GIB, MIB, Machine, size

TINY = 64 * MIB  # what Docker gives a container that asks for nothing
SMALL = GIB

CURE = (
    "Start the container with --shm-size=8g or --ipc=host; on Kubernetes mount a memory volume on it. "
    "Until then: fewer workers (num_workers=0 needs none of it) or smaller batches."
)


def need(ranks: int, workers: int, batch: int, prefetch: int = 2) -> int:
    """Bytes of /dev/shm that loaders may fill: `need(4, 2, 20 * 2**20)` is 335544320, 320 MiB.

    ranks     processes of the job on this machine
    workers   DataLoader's num_workers, which is per rank
    batch     bytes of one batch
    prefetch  batches each worker prepares in advance; DataLoader's prefetch_factor, 2 unless you set it

    Source of the formula: torch.utils.data's documentation of num_workers and prefetch_factor.
    """
    return ranks * workers * prefetch * batch


def check(machine: Machine) -> Finding:
    name = "shared memory"
    if machine.shm_total is None or machine.shm_free is None:
        return Finding(name, "ok", "this system has no /dev/shm", "Workers hand batches over in another way here.")
    found = f"/dev/shm has {size(machine.shm_free)} free of {size(machine.shm_total)}"
    example = size(need(ranks=4, workers=2, batch=20 * MIB))
    why = f"DataLoader workers hand their batches over in it: 4 ranks × 2 workers × 2 batches of 20 MiB are {example}."
    if machine.shm_total <= TINY:
        why += " Docker gives 64 MiB unless asked; the job then dies of “No space left on device” or a bus error."
        return Finding(name, "problem", found, why, CURE)
    if machine.shm_free <= TINY:
        cure = "Look into /dev/shm: killed jobs leave torch_* and nccl-* files behind. Remove those nobody uses."
        return Finding(name, "problem", found, f"{why} Others have filled it.", cure)
    if machine.shm_free < SMALL:
        return Finding(name, "warning", found, f"{why} That fits, larger batches do not.", CURE)
    return Finding(name, "ok", found, why)
