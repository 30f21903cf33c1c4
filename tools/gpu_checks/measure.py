"""Time one step again and again. A GPU works on by itself, so each look at the clock waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from .spread import Spread, spread


def seconds(step: Callable[[], object], warm_up: int, repeats: int) -> Spread:
    """Seconds of one step."""
    for _ in range(warm_up):
        step()
    times = []
    for _ in range(repeats):
        _synchronise()
        start = time.perf_counter()
        step()
        _synchronise()
        times.append(time.perf_counter() - start)
    return spread(times)


def _synchronise() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
