"""Runs inside a rank, around a learner's script of lesson 10: ``measuring_harness.py MODE SCRIPT``.

"throughput" (10.1): the script's function times a step of ours, on a clock of ours. "speed_up" (10.3): it is asked for
cases that it does not know. The script is only read, its ``if __name__ == "__main__"`` is not run. What was seen is
left in measuring.json beside the rank's logs.
"""

from __future__ import annotations

import runpy
import sys
import threading
import time
import timeit
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ddp_helpers.exercises import note

WARM_UP = 8  # slow steps before the others
SLOW, PATTERN = 20.0, (12.0, 0.9, 1.0, 1.1, 1.0, 1.0, 1.0)  # times the usual step; every seventh is disturbed
USUAL = (0.010, 0.014, 0.012, 0.011)  # seconds of a step, rank by rank
LAUNCH = 1e-5  # seconds until a step has been handed to the device
BATCHES, STARTS = (32, 5), (0, 3)  # and where in the pattern the first step after the slow ones is
# one process, two, and how many are asked for; in the last but one, noise made two ranks the faster ones
CASES = (
    (0.1, 0.12, 8), (0.1, 0.12, 2), (0.1, 0.12, 1), (0.02, 0.05, 64), (0.5, 0.6, 3), (0.1, 0.095, 8), (1.0, 1.0, 4),
)  # fmt: skip
CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")


class Device:
    """A clock, and a device that works through its steps while the program runs on, as a GPU does."""

    def __init__(self, usual: float, start: int) -> None:
        self.usual, self.start, self.now, self.done = usual, start, 0.0, 0.0
        self.steps, self.steps_at_first_read, self.busy_reads = 0, -1, 0
        # between two readings with one step or more in between: seconds a step, and the steps before the first of them
        self.spans: list[tuple[float, int]] = []
        self._read_at, self._steps_at_read = 0.0, 0

    def step(self) -> None:
        past = self.steps - WARM_UP
        self.steps += 1
        self.now += LAUNCH
        times = SLOW if past < 0 else PATTERN[(past + self.start) % len(PATTERN)]
        self.done = max(self.now, self.done) + self.usual * times

    def synchronise(self) -> None:
        self.now = max(self.now, self.done)

    def read(self) -> float:
        if self.steps_at_first_read < 0:
            self.steps_at_first_read = self.steps
        elif self.steps > self._steps_at_read:
            each = (self.now - self._read_at) / (self.steps - self._steps_at_read)
            self.spans.append((each, self._steps_at_read))
        self.busy_reads += self.done > self.now
        self._read_at, self._steps_at_read = self.now, self.steps
        return 1000.0 + self.now


class Clocks:
    """In place of the functions of `time`, so that a script may import them by name.

    Ours while a device is set, and for the script alone: the launcher's threads in this process go by the real time.
    """

    def __init__(self) -> None:
        self.device: Device | None = None
        for name in CLOCKS:
            setattr(time, name, self._clock(name, getattr(time, name)))
        bound, timeit.default_timer = timeit.default_timer, time.perf_counter
        functions: tuple[Any, ...] = (timeit.Timer.__init__, timeit.timeit, timeit.repeat)
        for function in functions:  # they have it as the default of an argument
            function.__defaults__ = tuple(time.perf_counter if d is bound else d for d in function.__defaults__)

    def _clock(self, name: str, real: Any) -> Any:
        def clock() -> float:
            if self.device is None or threading.current_thread() is not threading.main_thread():
                return real()
            seconds = self.device.read()
            return int(seconds * 1e9) if name.endswith("_ns") else seconds

        return clock


def main(mode: str, script: str) -> None:
    seen: dict[str, Any] = {"cases": []}
    sys.path[0] = str(Path(script).parent)
    sys.argv[:] = [script]
    clocks = Clocks()
    try:
        found = runpy.run_path(script, run_name="read_only")
        dist.init_process_group("gloo")
        dist.barrier()
        if mode == "throughput":
            try_throughput(found["throughput"], clocks, seen["cases"])
        else:
            try_speed_up(found["speed_up"], seen["cases"])
        dist.barrier()
    finally:
        note.leave(seen, "measuring.json")
    dist.destroy_process_group()


def try_throughput(throughput: Any, clocks: Clocks, cases: list[dict[str, Any]]) -> None:
    for batch, start in zip(BATCHES, STARTS, strict=True):
        device = Device(USUAL[dist.get_rank()], start)
        clocks.device = device
        try:
            value = throughput(device.step, device.synchronise, batch)
        finally:
            clocks.device = None
        first = device.steps if device.steps_at_first_read < 0 else device.steps_at_first_read
        cases.append({"value": number(value), "warm_up": first, "busy": device.busy_reads, "spans": device.spans})


def try_speed_up(speed_up: Any, cases: list[dict[str, Any]]) -> None:
    for case in CASES:
        cases.append({"case": case})
        cases[-1]["value"] = number(speed_up(*case))


def number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


if __name__ == "__main__":
    main(*sys.argv[1:])
