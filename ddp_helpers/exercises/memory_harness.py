"""Runs inside a rank, around a learner's script of exercise 12.2: ``memory_harness.py memory SCRIPT WIDTH``.

Two models with layers of WIDTH by WIDTH are trained in three ways; the script's held() is asked what a rank holds, and
it is measured. The script's ``if __name__ == "__main__"`` is not run. What was seen is left in seen.json beside the
rank's logs.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ddp_helpers.exercises import note

WAYS = ("DDP", "ZeRO-1", "FSDP")

Seen = dict[str, Any]


def main(mode: str, script: str, width: str) -> None:
    sys.path[0] = str(Path(script).parent)
    sys.argv[:] = [script]
    found = runpy.run_path(script, run_name="checked")
    seen: Seen = {"models": []}
    dist.init_process_group("gloo")
    try:
        try_memory(found, int(width), seen)
        dist.barrier()
    finally:
        note.leave(seen)
    dist.destroy_process_group()


def try_memory(found: dict[str, Any], width: int, seen: Seen) -> None:
    world = dist.get_world_size()
    for layers in (world, 2 * world):  # ZeRO-1 deals out whole tensors: then they divide evenly
        parameters = layers * (width**2 + width)
        for way in WAYS:
            measured = train(way, layers, width)
            answer = found["held"](parameters, world, way)
            said = {name: number(answer.get(name)) for name in measured} if isinstance(answer, dict) else repr(answer)
            seen["models"].append({"way": way, "parameters": parameters, "measured": measured, "said": said})


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def train(way: str, layers: int, width: int) -> dict[str, int]:
    """Two steps with Adam; the bytes that this rank holds after them."""
    model: nn.Module = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
    if way == "FSDP":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in [*model.children(), model]:
            fully_shard(layer, mesh=mesh)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer: Any
    if way == "ZeRO-1":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, width)).square().mean().backward()
        optimizer.step()
    states = getattr(optimizer, "optim", optimizer).state.values()
    return {
        "parameters": size(model.parameters()),
        "gradients": size(parameter.grad for parameter in model.parameters()),
        "optimizer": size(value for state in states for value in state.values() if value.dim()),
    }


def size(tensors: Iterable[Any]) -> int:
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in local)


if __name__ == "__main__":
    main(*sys.argv[1:])
