"""Which of a machine's GPUs a job would see, and which of them belong together."""

from __future__ import annotations

from .machine import Gpu, Machine

NONE = ("", "-1", "NoDevFiles", "none")  # entries that mean "no GPU", and are no mistake
BUSY = 50  # percent: somebody computes there


def visible_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves visible (NVML shows all of them, CUDA only these).

    Read as CUDA reads it: numbers or the beginning of a GPU's UUID; everything from the first entry that fits no GPU
    on is dropped, and with a GPU named twice none is left. Numbers are taken in the driver's order, as with
    CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    return _read(machine)[0]


def mistake(machine: Machine) -> str | None:
    """What is wrong with CUDA_VISIBLE_DEVICES; None when it means what it says, or hides all GPUs on purpose."""
    return _read(machine)[1]


def _read(machine: Machine) -> tuple[tuple[Gpu, ...], str | None]:
    if machine.cuda_visible_devices is None:
        return machine.gpus, None
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in machine.cuda_visible_devices.split(",")):
        match = _find(machine.gpus, entry)
        if match is None:
            return tuple(chosen), None if entry in NONE else f"{entry} is none of them"
        if match in chosen:
            return (), f"{entry} names a GPU for the second time"
        chosen.append(match)
    return tuple(chosen), None


def _find(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    for gpu in gpus:
        if entry == str(gpu.index) or (entry.startswith("GPU-") and gpu.uuid.startswith(entry)):
            return gpu
        if entry.startswith("MIG-") and gpu.mig:  # an instance; which GPU's does not matter to us
            return gpu
    return None


def same_model(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The largest group of GPUs of one model; of two groups of one size, the one with more memory."""
    groups: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(gpu.model, []).append(gpu)
    best = max(groups.values(), key=lambda group: (len(group), group[0].memory_total), default=[])
    return tuple(best)


def free_gpus(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Those with at least half of their memory free, on which nobody computes."""
    return tuple(gpu for gpu in gpus if gpu.memory_used * 2 <= gpu.memory_total and not is_busy(gpu))


def is_busy(gpu: Gpu) -> bool:
    return (gpu.busy or 0) >= BUSY


def numbers(gpus: tuple[Gpu, ...]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)
