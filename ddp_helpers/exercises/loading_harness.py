"""Runs inside a rank, around a learner's script of lesson 05: ``loading_harness.py MODE SCRIPT [ARGS]``.

MODE is "run" (the script as it is, with ARGS), "epochs" (the same; notes what `set_epoch` is told), "sampler", "stream"
or "resume" (after the script, calls what it defines, with data that it does not know). Under "stream" the script is
only read, as its workers may read it. What was seen is left in loading.json beside the rank's logs, and so is the case
that was being tried, if the script failed in one.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.utils.data import Dataset, DistributedSampler

from ddp_helpers.exercises import note

SIZES = (7, 12, 23, 5, 4, 3, 2, 1, 0)
STREAMS, WORKERS = (12, 37, 5, 1, 0), (3, 0, 1, 2)  # longer than the script's own stream, which has 23 items
STOPS = ((0, 0), (0, 2), (1, 0), (1, 1), (2, 3))  # epoch, step
BATCH, SAMPLES = 3, 41
CODE = 1000  # sample number i is the value CODE + i: a number and its sample are not to be mixed up

Cases = list[dict[str, Any]]


class Counting(Dataset[int]):
    """Notes which numbers it is asked for."""

    def __init__(self, size: int) -> None:
        self.size, self.asked = size, list[int]()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.asked.append(int(index))
        return CODE + int(index)


def main(mode: str, script: str, *args: str) -> None:
    cases: Cases = []
    leave_group = dist.destroy_process_group
    made: list[object] = note_epochs(cases) if mode == "epochs" else []
    if mode in ("sampler", "resume"):  # what the script defines may need its group
        dist.destroy_process_group = lambda *_: None
    # Scripts may end without a collective: then a rank that leaves early makes others fail, which still connect to it.
    os.environ.setdefault("TORCH_DIST_INIT_BARRIER", "1")
    sys.argv[:] = [script, *args]
    sys.path[0] = str(Path(script).parent)
    try:
        found = runpy.run_path(script, run_name="read_only" if mode == "stream" else "__main__")
        if mode == "epochs":
            stale = len(made) > 1 and getattr(found.get("loader"), "sampler", None) is made[0]
            cases.append({"seen": found["seen"], "stale": stale})
        elif mode == "sampler":
            try_samplers(found["DistributedEvalSampler"], cases)
        elif mode == "stream":
            try_streams(found["ShardedStream"], cases)
        elif mode == "resume":
            try_resuming(found["loader_from"], cases)
    finally:
        note.leave({"cases": cases}, "loading.json", plain)
    if dist.is_initialized():
        leave_group()


def plain(value: Any) -> Any:
    """What JSON doesn't know: tensors, and iterables of every kind."""
    return value.tolist() if hasattr(value, "tolist") else list(value)


def note_epochs(cases: Cases) -> list[object]:
    """Note every epoch that a sampler is told, as a case of its own; the list will hold the samplers that are made."""
    set_epoch, init, made = DistributedSampler.set_epoch, DistributedSampler.__init__, list[object]()

    def noting(self: DistributedSampler[Any], epoch: int) -> None:
        cases.append({"told": int(epoch)})
        set_epoch(self, epoch)

    def noting_itself(self: DistributedSampler[Any], *args: Any, **options: Any) -> None:
        made.append(self)
        init(self, *args, **options)

    DistributedSampler.set_epoch, DistributedSampler.__init__ = noting, noting_itself
    return made


def try_samplers(sampler_class: Any, cases: Cases) -> None:
    """For each of SIZES: what this rank's sampler gives, twice, and what its len() is."""
    for size in SIZES:
        cases.append({"size": size})
        sampler = sampler_class(Counting(size), shuffle=False)
        cases[-1].update(read=list(sampler), again=list(sampler), len=len(sampler))


def try_streams(stream_class: Any, cases: Cases) -> None:
    """For each of STREAMS and WORKERS: what each worker of this rank reads. The workers are played in this process."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for length in STREAMS:
        for workers in WORKERS:
            cases.append({"length": length, "workers": workers, "shares": []})
            for worker in range(max(1, workers)):
                stream = stream_class(source(length), rank, world_size)
                play_worker(worker, workers, stream)
                cases[-1]["shares"].append([int(item) - CODE for item in stream])
                play_worker(0, 0, None)


def source(length: int) -> Callable[[], Iterator[int]]:
    """What a stream reads: to be called, then gone through once, without a length."""

    def read() -> Iterator[int]:
        yield from range(CODE, CODE + length)

    return read


def play_worker(worker: int, workers: int, dataset: Any) -> None:
    """Let `get_worker_info()` answer as in that worker; without workers, as outside of any."""
    from torch.utils.data._utils import worker as module

    info = module.WorkerInfo(id=worker, num_workers=workers, seed=0, dataset=dataset) if workers else None
    module._worker_info = info


def try_resuming(loader_from: Any, cases: Cases) -> None:
    """For each of STOPS: the batches that are left, and the numbers of the samples that were loaded for them."""
    for epoch, step in STOPS:
        dataset = Counting(SAMPLES)
        cases.append({"epoch": epoch, "step": step})
        batches = [[int(value) - CODE for value in batch] for batch in loader_from(dataset, epoch, step, BATCH)]
        cases[-1].update(batches=batches, asked=dataset.asked)


if __name__ == "__main__":
    main(*sys.argv[1:])
