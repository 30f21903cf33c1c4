"""Runs inside a rank, around a script of lesson 09's clinic: ``clinic_harness.py PATIENT SCRIPT SEED``.

The script reads the digits in another order, and a process group waits as long as it must: who hangs is the notebook's
to say (see lesson09.py). What one process computes (clinic_truth.py), the weights that the script's optimizer left, how
many samples it worked on, and how many collectives carried a number go to seen.json beside the rank's logs. Without
SEED the data are as they are, and nothing is judged: so patients are admitted. For patient 3 this file plays a machine
with little memory.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddp_helpers.exercises import clinic_truth, note

DATA = "../data/digits.npz"
LONG = timedelta(minutes=5)
PATIENCE = 5.0  # seconds; a rank that never joins must not keep the others for ever
# Bytes that patient 3's ranks, all together, may keep for a backward. A script that keeps all has 63 MB in the end.
MEMORY = 40 << 20
CARRIERS = (
    "all_reduce", "reduce", "broadcast", "all_gather", "gather", "all_gather_object", "gather_object", "all_to_all",
    "broadcast_object_list", "all_gather_into_tensor", "reduce_scatter_tensor", "send", "isend",
)  # fmt: skip
# Where the scripts' samples pass through: the function, and which of its arguments has a row for each.
WORK = ((torch.nn.functional, "cross_entropy", 1), (torch, "cdist", 0))
Seen = dict[str, Any]


def main(patient: str, script: str, seed: str = "") -> None:
    number, rank, world = int(patient), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sys.argv[:] = [script]
    sys.path[0] = str(Path(script).parent)
    small = number == 3 and rank == world - 1
    with LittleMemory(MEMORY // world).hooks() if small else nullcontext():
        if seed:
            judged(number, script, int(seed), world)
        else:
            signal.signal(signal.SIGTERM, lambda *_: None)  # torchrun ends victims: let them have said their word
            runpy.run_path(script, run_name="__main__")


def judged(number: int, script: str, seed: int, world: int) -> None:
    seen: Seen = {"calls": 0, "samples": 0, "steps": 0, "weights": {}}
    data = clinic_truth.digits(np.load, DATA, seed, number, world)
    with other_digits(data), patient_groups(), counted(seen), weighed(seen), watched(seen):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as stop:
            if stop.code:
                raise
    if os.environ["RANK"] == "0":
        images = torch.from_numpy(data["images"]).flatten(1) / 16
        seen["truth"] = clinic_truth.TRUTHS[number](images, torch.from_numpy(data["labels"]).long(), world)
    note.leave(seen)


class LittleMemory:
    """Whoever keeps too much for backward() is killed, as the kernel does it: no exception, no last word.

    What autograd keeps is counted, not the process's memory: how much of that is given back is the allocator's affair.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._kept = limit, 0
        self._holders: Counter[int] = Counter()  # by storage: one may be kept for several operations

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(self._keep, lambda kept: kept.tensor)

    def _keep(self, tensor: Any) -> Any:
        # Detached: with its grad_fn a saved result would hold the operation that holds it, for ever.
        kept, storage = Kept(tensor.detach()), tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        self._kept += 0 if self._holders[place] else size
        self._holders[place] += 1
        weakref.finalize(kept, self._let_go, place, size)
        if self._kept > self._limit:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return kept

    def _let_go(self, place: int, size: int) -> None:
        self._holders[place] -= 1
        self._kept -= 0 if self._holders[place] else size


@dataclass(eq=False)
class Kept:
    tensor: Any


@contextmanager
def replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def other_digits(data: dict[str, Any]) -> Any:
    class Loaded(dict[str, Any]):
        """Used as np.load's own: data["images"], data.files, and in a with statement."""

        @property
        def files(self) -> list[str]:
            return list(self)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    # A copy: a script may write into what it has loaded.
    return replaced(np, "load", lambda *_, **__: Loaded({name: array.copy() for name, array in data.items()}))


@contextmanager
def patient_groups() -> Iterator[None]:
    """A group's timeout says nothing here: a busy machine must not fail a right script, nor a long one hide a hang."""
    join, new_group = dist.init_process_group, dist.new_group

    def join_patiently(*args: Any, **options: Any) -> None:
        join(*args, **{**options, "timeout": LONG})
        meet()

    def group_patiently(*args: Any, **options: Any) -> Any:
        return new_group(*args, **{**options, "timeout": LONG})

    with replaced(dist, "init_process_group", join_patiently), replaced(dist, "new_group", group_patiently):
        yield


def meet() -> None:
    """Wait, not for long, until all have joined: gloo fails when one leaves while others are still connecting."""
    folder = note.place().parent
    (folder / "joined").touch()
    all_ranks = [folder.parent / str(rank) / "joined" for rank in range(int(os.environ["WORLD_SIZE"]))]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not all(path.exists() for path in all_ranks):
        time.sleep(0.002)


@contextmanager
def counted(seen: Seen) -> Iterator[None]:
    """Counts the script's own calls of what carries a number from rank to rank. DDP's do not come this way."""
    originals = {name: getattr(dist, name) for name in CARRIERS if hasattr(dist, name)}

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            seen["calls"] += 1
            return function(*args, **options)

        return call

    for name, function in originals.items():
        setattr(dist, name, counting(function))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(dist, name, function)


@contextmanager
def weighed(seen: Seen) -> Iterator[None]:
    """Counts the samples that this rank works on: ranks that all do the whole work are right, and of no use."""

    def counting(function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            rows = args[place] if place < len(args) else options.get("target")
            seen["samples"] += len(rows) if isinstance(rows, torch.Tensor) and rows.dim() else 1
            return function(*args, **options)

        return call

    with ExitStack() as stack:
        for owner, name, place in WORK:
            stack.enter_context(replaced(owner, name, counting(getattr(owner, name), place)))
        yield


@contextmanager
def watched(seen: Seen) -> Iterator[None]:
    """Notes the optimizers' steps, and the weights that their last ones left."""
    optimizers: list[Any] = []

    def step(optimizer: Any, *_: Any) -> None:
        seen["steps"] += 1
        if not any(optimizer is known for known in optimizers):
            optimizers.append(optimizer)

    handle = register_optimizer_step_post_hook(step)
    try:
        yield
    finally:
        handle.remove()
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    seen["weights"] = clinic_truth.by_shape(parameter for group in groups for parameter in group["params"])


if __name__ == "__main__":
    main(*sys.argv[1:])
