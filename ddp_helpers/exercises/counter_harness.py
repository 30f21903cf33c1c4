"""Runs inside a rank, around a learner's class `Counted`, for exercise 04.3: ``counter_harness.py train SCRIPT``.

The script runs in our process group, and then its class is trained here, with batches of different sizes, evaluated,
saved and loaded. What `seen` said at each point is left in seen.json beside the rank's logs.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_helpers.exercises import note

STEPS = 4


def main(_mode: str, script: str) -> None:
    sys.argv[:] = [script]
    sys.path[0] = str(Path(script).parent)
    dist.init_process_group("gloo")
    leave, stay = dist.destroy_process_group, lambda *_, **__: None
    dist.init_process_group = dist.destroy_process_group = stay  # a group that is left is not soon joined again
    counted = runpy.run_path(script, run_name="__main__")["Counted"]
    found = use(counted, dist.get_rank())
    note.leave(found)
    dist.barrier()
    leave()


def use(counted: Any, rank: int) -> dict[str, Any]:
    model = DistributedDataParallel(counted())
    sizes = [3 + 2 * rank + step for step in range(STEPS)]
    for size in sizes:
        model(torch.randn(size, 2)).sum().backward()
    trained = number(model.module)
    model.eval()
    model(torch.randn(5, 2))  # with gradients enabled: those are another switch than eval()
    evaluated = number(model.module)
    again = counted()
    again.load_state_dict(model.module.state_dict(), strict=False)
    return {"sizes": sizes, "trained": trained, "evaluated": evaluated, "loaded": number(again)}


def number(model: Any) -> int | str | None:
    """What `seen` says, as a number; its text if it is none; None if there is no `seen`."""
    seen = getattr(model, "seen", None)
    try:
        return None if seen is None else int(seen)
    except (TypeError, ValueError, RuntimeError):
        return repr(seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
