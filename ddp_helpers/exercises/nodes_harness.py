"""Runs inside a rank, around a learner's script of exercise 12.1: ``nodes_harness.py nodes SCRIPT FOLDER``.

FOLDER plays the shared file system; each node has a disk of its own, a folder below it. What the script defines (fetch,
share, local_device, save) is called with data of ours; its ``if __name__ == "__main__"`` is not run. What was seen is
left in seen.json beside the rank's logs. The script's own time.sleep() returns at once: no time is long enough to be
a barrier.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import Any

import torch
import torch.distributed as dist

from ddp_helpers.exercises import note

SLOW = 0.2  # seconds that a download and a save take; a rank that does not wait has long returned by then
SAMPLES = (12, 10, 3)

Seen = dict[str, Any]


def main(mode: str, script: str, folder: str) -> None:
    sys.path[0] = str(Path(script).parent)
    sys.argv[:] = [script]
    time.sleep = lambda seconds: None
    found = runpy.run_path(script, run_name="checked")
    seen: Seen = {"in": ""}
    join()
    try:
        try_nodes(found, folder, seen)
        dist.barrier()
    finally:
        note.leave(seen)
    dist.destroy_process_group()


def join() -> None:
    """Whoever waits alone in a barrier is told soon; a rank that a busy machine starts late is waited for."""
    store, rank, world = next(dist.rendezvous("env://"))
    store.set(f"here{rank}", "")
    store.wait([f"here{other}" for other in range(world)])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=5))


def try_nodes(found: dict[str, Any], folder: str, seen: Seen) -> None:
    node, rank = int(os.environ["GROUP_RANK"]), dist.get_rank()
    seen.update(node=node, local_rank=int(os.environ["LOCAL_RANK"]))
    disk = Path(folder) / f"node{node}"
    disk.mkdir(exist_ok=True)
    seen["downloads"] = 0

    def download(path: Any) -> None:
        seen["downloads"] += 1
        Path(path).touch()  # as a real download: the file is there long before all of it is
        sleep(SLOW)
        Path(path).write_text("data", encoding="utf-8")

    together(seen, "fetch")
    path = found["fetch"](download, str(disk))
    seen["fetched"] = path is not None and Path(path).is_file() and Path(path).read_text(encoding="utf-8") == "data"
    seen["elsewhere"] = path is not None and disk not in Path(path).parents
    together(seen, "share")
    seen["shares"] = [(samples, numbers(found["share"](samples))) for samples in SAMPLES]
    together(seen, "local_device")
    seen["device"] = index(found["local_device"]())
    together(seen, "save")
    seen["saves"] = 0
    checkpoint = Path(folder) / "checkpoint.pt"
    with_slow_saves(lambda: found["save"]({"from": rank}, str(checkpoint)), seen)
    seen["saved"] = content(checkpoint)
    together(seen, "the end")


def together(seen: Seen, name: str) -> None:
    """All ranks come here before the next function is called; a barrier that one called alone would pair with this."""
    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, name)
    seen["in"] = name
    dist.barrier()


def numbers(share: Any) -> list[int] | None:
    return [int(number) for number in share] if isinstance(share, Iterable) else None


def index(device: Any) -> int | str | None:
    """The number in 1, "cuda:1" or torch.device("cuda", 1); "1" itself, which torch does not take for a device."""
    if isinstance(device, str) and device.isdigit():
        return device
    if isinstance(device, str | torch.device):
        found = torch.device(device).index
        return int(found) if found is not None else None
    return int(device) if isinstance(device, int) else None


def with_slow_saves(call: Callable[[], Any], seen: Seen) -> None:
    real = torch.save

    def slow(obj: Any, f: Any, *args: Any, **options: Any) -> None:
        seen["saves"] += 1
        if isinstance(f, str | os.PathLike):
            Path(f).touch()
        sleep(SLOW)
        real(obj, f, *args, **options)

    torch.save = slow
    try:
        call()
    finally:
        torch.save = real


def content(checkpoint: Path) -> str:
    """What is in it: "the state" of any rank, "something else", or "" where no whole file is there."""
    try:
        loaded = torch.load(checkpoint)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
        return ""
    return "the state" if isinstance(loaded, dict) and "from" in loaded else "something else"


if __name__ == "__main__":
    main(*sys.argv[1:])
