"""Runs inside a rank, around a learner's script of lesson 11: ``vit_harness.py MODE SCRIPT``, MODE "step" or "batches".

What the script defines is called with data that it does not know; its ``if __name__ == "__main__"`` is not run. What
came out is left in vit.json beside the rank's logs, and so is the case that was being tried, if the script failed.
"""

from __future__ import annotations

import runpy
import sys
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from ddp_helpers.exercises import note

LEARNING_RATE = 0.5
FIRST, THEN = 7, 6  # batches that are taken from the beginning, and after a stop


class StepCase(NamedTuple):
    """Two optimizer steps. Rank r gets the micro-batches of the row r modulo their number."""

    sizes: tuple[tuple[int, ...], ...]
    max_norm: float
    scale: float = 1.0  # of the inputs: how large gradients are


class BatchCase(NamedTuple):
    size: int  # of the dataset
    batch: int
    stops: tuple[int, ...]


STEP_CASES = (
    StepCase(((4, 4), (4, 4), (4, 4)), 1e6),
    StepCase(((6, 1), (2, 3), (5, 2)), 1e6),
    StepCase(((7,), (1, 2, 2), (3, 1)), 1e6),
    StepCase(((6, 1), (2, 3), (5, 2)), 0.05, 3.0),
)
BATCH_CASES = (BatchCase(36, 3, (0, 14, 4, 2, 1)), BatchCase(50, 4, (3, 5, 12)))


def main(mode: str, script: str) -> None:
    seen: dict[str, Any] = {"cases": []}
    sys.path[0] = str(Path(script).parent)
    sys.argv[:] = [script]
    try:
        found = runpy.run_path(script, run_name="read_only")
        dist.init_process_group("gloo")
        dist.barrier()
        if mode == "step":
            try_steps(found["train_step"], seen["cases"])
        else:
            try_batches(found["batches"], seen["cases"])
        dist.barrier()
    finally:
        note.leave(seen, "vit.json")
    dist.destroy_process_group()


def make_net() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()


def micro_batches(case: StepCase, step: int, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [
        (
            case.scale * torch.randn(size, 6, generator=generator).double(),
            torch.randint(3, (size,), generator=generator),
        )
        for size in case.sizes[rank % len(case.sizes)]
    ]


def weights_of(net: torch.nn.Module) -> list[float]:
    return [value for parameter in net.parameters() for value in parameter.detach().flatten().tolist()]


def counted(sent: Any, bucket: Any) -> Any:
    sent["messages"] += 1
    return allreduce_hook(None, bucket)


counted.__annotations__.clear()  # DDP compares them with classes, and here they are strings


def watched(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[list[int], list[int]]:
    """Lists that will grow: by the samples of each forward, and with each step of the optimizer."""
    forwards: list[int] = []
    steps: list[int] = []
    net.register_forward_pre_hook(lambda _, inputs: forwards.append(len(inputs[0])))
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    return forwards, steps


def try_steps(train_step: Any, cases: list[dict[str, Any]]) -> None:
    for case in STEP_CASES:
        seen: dict[str, Any] = {"messages": [], "forwards": [], "steps": [], "losses": [], "weights": []}
        cases.append(seen)
        net = make_net()
        model = DistributedDataParallel(net)
        sent = {"messages": 0}
        model.register_comm_hook(sent, counted)
        forwards, steps = watched(net, optimizer := torch.optim.SGD(model.parameters(), lr=LEARNING_RATE))
        for step in range(2):
            sent["messages"] = 0
            forwards.clear()
            steps.clear()
            loss = train_step(model, optimizer, micro_batches(case, step, dist.get_rank()), case.max_norm)
            seen["losses"].append(float(loss) if loss is not None else None)
            seen["messages"].append(sent["messages"])
            seen["forwards"].append(max(forwards, default=0))
            seen["steps"].append(len(steps))
            seen["weights"].append(weights_of(net))
        too_many = torch.tensor(max(seen["messages"]) > 1).long()
        dist.all_reduce(too_many, op=dist.ReduceOp.MAX)
        if too_many:  # ranks with different numbers of micro-batches would wait for each other in the next case
            return


def try_batches(batches: Any, cases: list[dict[str, Any]]) -> None:
    for case in BATCH_CASES:
        for done in case.stops:
            seen: dict[str, Any] = {"size": case.size, "batch": case.batch, "done": done, "got": None}
            cases.append(seen)
            sampler = DistributedSampler(range(case.size), seed=3)
            got = batches(sampler, case.batch, done)
            if got is not None:
                seen["got"] = [[int(number) for number in batch] for batch in islice(got, FIRST if not done else THEN)]


if __name__ == "__main__":
    main(*sys.argv[1:])
