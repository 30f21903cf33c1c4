"""Runs inside a rank, around a learner's training, for exercise 04.1: ``migration_harness.py watch SCRIPT [ARGS]``.

It notes which batches reach the first layer in training, who saves, and how the rank joined. A rank that would join
under a wrong number, and so wait for ever, is noted and joined under its right one. What was seen is left in seen.json
beside the rank's logs.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook

from ddp_helpers.exercises import note

PIXELS = 64  # what the model's first layer takes, and no other


def main(_mode: str, script: str, *args: str) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # simulated nodes would meet on one GPU, and NCCL refuses that
    seen: dict[str, Any] = {"joined": False, "wrong": {}, "batches": [], "saved": [], "weight": []}
    layers: list[torch.nn.Linear] = []
    register_module_forward_pre_hook(lambda module, inputs: note_batch(module, inputs, seen, layers))
    watch_joining(seen)
    watch_saving(seen)
    sys.argv[:] = [script, *args]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        if layers:
            seen["weight"] = layers[-1].weight.detach().double().sum(1).tolist()
        note.leave(seen)


def note_batch(module: torch.nn.Module, inputs: Any, seen: dict[str, Any], layers: list[torch.nn.Linear]) -> None:
    if isinstance(module, torch.nn.Linear) and module.in_features == PIXELS and torch.is_grad_enabled():
        layers[:] = [module]
        seen["batches"].append([len(inputs[0]), inputs[0].double().sum().item()])


def watch_joining(seen: dict[str, Any]) -> None:
    join = dist.init_process_group
    right = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}

    def joined(*args: Any, **options: Any) -> None:
        for name, number in right.items():
            if options.get(name, -1) not in (None, -1, number):
                seen["wrong"][name] = options[name]
                options[name] = number
        join(*args, **options)
        seen["joined"] = True

    dist.init_process_group = joined


def watch_saving(seen: dict[str, Any]) -> None:
    save = torch.save

    def saved(obj: object, f: Any, *args: Any, **options: Any) -> None:
        seen["saved"].append(str(getattr(f, "name", f)))
        save(obj, f, *args, **options)

    torch.save = saved


if __name__ == "__main__":
    main(*sys.argv[1:])
