"""Are all NVLinks up?"""

from __future__ import annotations

from collections import defaultdict

from .finding import Finding
from .machine import Gpu, Machine
from .visible import numbers, visible_gpus

NAME = "NVLink"


def check(machine: Machine) -> Finding:
    visible = visible_gpus(machine)
    waiting = [gpu for gpu in visible if gpu.fabric not in (None, "ready")]
    if waiting:
        return _fabric(machine, waiting)
    fewer = _fewer(visible)
    if fewer:
        return Finding(
            NAME,
            "warning",
            "; ".join(f"GPU {gpu.index} has {gpu.nvlinks} links up, others of its model {most}" for gpu, most in fewer),
            "It works, but the GPU with the fewest links sets the pace of every collective.",
            "nvidia-smi nvlink -s shows which are down. A reset or reboot may bring them back; else it is hardware.",
        )
    return Finding(NAME, "ok", "no link is down", "As many on each GPU as on the others of its model.", minor=True)


def _fabric(machine: Machine, waiting: list[Gpu]) -> Finding:
    by_state: dict[str | None, list[Gpu]] = {}
    for gpu in waiting:
        by_state.setdefault(gpu.fabric, []).append(gpu)
    states = "; ".join(f"GPU {numbers(tuple(group))}: {state}" for state, group in by_state.items())
    return Finding(
        NAME,
        "problem" if machine.cuda_error else "warning",
        f"not registered with the NVLink switches ({states})",
        "On such machines CUDA waits for it (“system not yet initialized”), or GPUs cannot reach each other.",
        "The service nvidia-fabricmanager must run on the host, of the driver's very version: systemctl status "
        "nvidia-fabricmanager.",
    )


def _fewer(gpus: tuple[Gpu, ...]) -> list[tuple[Gpu, int]]:
    """GPUs with fewer links up than others of their model. None at all is how a card without a bridge looks."""
    most: defaultdict[str, int] = defaultdict(int)
    for gpu in gpus:
        most[gpu.model] = max(most[gpu.model], gpu.nvlinks or 0)
    return [(gpu, most[gpu.model]) for gpu in gpus if 0 < (gpu.nvlinks or 0) < most[gpu.model]]
