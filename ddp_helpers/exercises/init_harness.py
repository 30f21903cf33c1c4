"""Runs inside a rank, around a learner's script, for exercise 01.3: ``init_harness.py MODE SCRIPT [ARGS]``.

MODE is "torchrun" (the rank as it is), "alone" (without what torchrun sets), "gpu" (as if each rank had a GPU; the
script is stopped where it would join the process group) or "alone-gpu" (both). What was seen is left in seen.json
beside the rank's logs.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ddp_helpers.exercises import note


class Enough(BaseException):
    """Stops the script; no Exception, so that the script does not catch it."""


def main(mode: str, script: str, *args: str) -> None:
    seen: dict[str, Any] = {"joined": False, "backend": None, "device": None, "alive": False, "error": ""}
    # Registered before the script can register anything, so that it runs after: leaving the group at exit is fine too.
    atexit.register(leave, note.place(), seen)
    ranks_on_this_node = int(os.environ["LOCAL_WORLD_SIZE"])
    if mode.startswith("alone"):
        forget_torchrun()
    if mode.endswith("gpu"):
        pretend_gpus(ranks_on_this_node, seen)
    sys.argv[:] = [script, *args]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException as error:
        seen["error"] = f"{type(error).__name__}: {error}"
        if not mode.endswith("gpu"):  # without a GPU, nothing that happens after joining says anything
            raise


def leave(path: Path, seen: dict[str, Any]) -> None:
    seen["alive"] = dist.is_initialized()
    note.write(path, seen)


def forget_torchrun() -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    prefixes = ("GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
    for name in [name for name in os.environ if name in names or name.startswith(prefixes)]:
        del os.environ[name]


def pretend_gpus(count: int, seen: dict[str, Any]) -> None:
    """Let torch say that there are so many GPUs, and note which one this rank chooses."""

    def choose(device: Any) -> None:
        seen["device"] = device if isinstance(device, int) else torch.device(device).index

    def join(backend: str | None = None, *_: Any, **options: Any) -> NoReturn:
        seen.update(joined=True, backend=backend)
        if options.get("device_id") is not None:
            choose(options["device_id"])
        raise Enough

    for module, names in (
        (torch.cuda, ("is_available", "device_count", "set_device")),
        (torch.accelerator, ("is_available", "device_count", "set_device_index")),
    ):
        for name, replacement in zip(names, (lambda: True, lambda: count, choose), strict=True):
            setattr(module, name, replacement)
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    dist.init_process_group = join


if __name__ == "__main__":
    main(*sys.argv[1:])
