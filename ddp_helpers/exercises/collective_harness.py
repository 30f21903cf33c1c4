"""Runs inside a rank, around a learner's script: ``collective_harness.py FUNCTION SCRIPT CASES PATIENCE``.

CASES is JSON: a list of cases, each with one list of arguments a rank. The script runs as it is; then its FUNCTION is
called once a case, on this rank's arguments, and seen.json gets what it returned, what it left in its first argument,
and every message and collective that it used. A rank that has stood still for PATIENCE seconds after a call of a
collective writes stuck.json and ends the run.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_helpers.exercises import note

TO_SAY_SO = 0.5  # seconds for the other ranks, which notice at about the same time: torchrun ends them when one is gone


class Watch(TorchDispatchMode):
    """Notes what goes through c10d, whichever of torch's functions was called, and that something goes at all."""

    def __init__(self, script: str, folder: Path, patience: float) -> None:
        super().__init__()
        self._script, self._folder, self._patience = script, folder, patience
        self._last = 0.0  # of time.monotonic(); 0: nothing to wait for
        self.phase = 0
        self.messages: list[dict[str, Any]] = []
        threading.Thread(target=self._wait, args=(threading.get_ident(),), daemon=True).start()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional"):
            self._last = time.monotonic()
            name = func._schema.name.partition("::")[2].rstrip("_")
            message = {"name": name, "line": self._line(sys._getframe()), "bytes": 0, "peer": None}
            if name == "send":
                message.update(bytes=sum(tensor.nbytes for tensor in args[0]), peer=args[2])
            self.messages.append(message)
        return func(*args, **(kwargs or {}))

    def rest(self) -> None:
        """This rank has done its part, and waits for nobody."""
        self._last = 0.0

    def _line(self, frame: Any) -> int | None:
        while frame and frame.f_code.co_filename != self._script:
            frame = frame.f_back
        return frame.f_lineno if frame else None

    def _wait(self, main_thread: int) -> None:
        while not self._last or time.monotonic() - self._last < self._patience:
            time.sleep(0.05)
        where = self._line(sys._current_frames()[main_thread])
        names = [message["name"] for message in self.messages]
        note.write(self._folder / "stuck.json", {"phase": self.phase, "line": where, "name": names[-1]})
        time.sleep(TO_SAY_SO)
        os._exit(1)


def main(function: str, script: str, cases: str, patience: str) -> None:
    folder = note.place().parent
    leave = dist.destroy_process_group
    dist.destroy_process_group = lambda *_, **__: None  # the function is called after the script has ended
    sys.argv[:] = [script]
    sys.path[0] = str(Path(script).parent)
    with Watch(script, folder, float(patience)) as watch:
        names = runpy.run_path(script, run_name="__main__")
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        meet(watch, folder)
        seen = [call(names[function], arguments, watch, folder) for arguments in json.loads(cases)]
    note.leave({"cases": seen})
    leave()


def call(function: Callable[..., Any], arguments: list[Any], watch: Watch, folder: Path) -> dict[str, Any]:
    first, *others = arguments[dist.get_rank()]
    if isinstance(first, dict):
        first = torch.tensor(first["values"], dtype=getattr(torch, first["dtype"])).reshape(first["shape"])
    watch.messages = []
    returned = function(first, *others)
    messages = watch.messages
    meet(watch, folder)
    left = first.flatten().tolist() if isinstance(first, torch.Tensor) else None
    return {"returned": plain(returned), "left": left, "messages": messages}


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) or hasattr(value, "item"):
        value = value.item() if value.numel() == 1 else value.tolist()
    return value if isinstance(value, int | float | None) else repr(value)[:60]


def meet(watch: Watch, folder: Path) -> None:
    """Wait for the other ranks without a collective, which could meet one that the learner left open."""
    watch.rest()
    watch.phase += 1
    name = f"phase{watch.phase}"
    (folder / name).touch()
    others = [folder.parent / str(rank) / name for rank in range(int(os.environ["WORLD_SIZE"]))]
    while not all(path.exists() for path in others):
        time.sleep(0.002)
    watch.rest()


if __name__ == "__main__":
    main(*sys.argv[1:])
