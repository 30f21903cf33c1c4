"""Runs inside a rank, around a learner's script of lesson 11: ``vit_harness.py MODE SCRIPT``, MODE "step" or "batches".

What the script defines is called with data that it does not know; its ``if __name__ == "__main__"`` is not run. What
came out is left in vit.json beside the rank's logs, and so is the case that was being tried, if the script failed.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from ddp_helpers.exercises import note

LEARNING_RATE = 0.5
FIRST, THEN = 7, 100  # batches that are taken from the beginning, and after a stop: a dozen epochs and more


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
BATCH_CASES = (BatchCase(35, 3, (0, 14, 4, 2, 1)), BatchCase(50, 4, (3, 5, 12)))


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


class Activations:
    """Of how many forwards there is still something that a backward needs: `most`, at any one time."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.alive: WeakSet[_Forward] = WeakSet()
        self.now: _Forward | None = None
        self.most = 0
        net.register_forward_pre_hook(self._begins)
        net.register_forward_hook(self._ends)

    def _begins(self, *_: object) -> None:
        self.now = _Forward()
        self.alive.add(self.now)

    def _ends(self, *_: object) -> None:
        self.most, self.now = max(self.most, len(self.alive)), None

    def watched(self) -> saved_tensors_hooks:
        """What autograd keeps during a forward holds on to that forward, until backward() has used it."""
        # detach(): an output that its own node holds on to would be a cycle, alive until the garbage collection.
        return saved_tensors_hooks(lambda tensor: (tensor.detach(), self.now), lambda kept: kept[0])


class _Forward:
    """One forward of the model; nothing but its being alive is asked for."""


def watched(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[list[int], list[int]]:
    """Lists that will grow: by the samples of each forward, and with each step of the optimizer."""
    forwards: list[int] = []
    steps: list[int] = []
    net.register_forward_pre_hook(lambda _, inputs: forwards.append(len(inputs[0])))
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    return forwards, steps


def try_steps(train_step: Any, cases: list[dict[str, Any]]) -> None:
    for case in STEP_CASES:
        seen: dict[str, Any] = {"messages": [], "forwards": [], "alive": [], "steps": [], "losses": [], "weights": []}
        cases.append(seen)
        net = make_net()
        model = DistributedDataParallel(net)
        sent = {"messages": 0}
        model.register_comm_hook(sent, counted)
        forwards, steps = watched(net, optimizer := torch.optim.SGD(model.parameters(), lr=LEARNING_RATE))
        activations = Activations(net)
        for step in range(2):
            sent["messages"] = activations.most = 0
            forwards.clear()
            steps.clear()
            with activations.watched():
                loss = train_step(model, optimizer, micro_batches(case, step, dist.get_rank()), case.max_norm)
            seen["losses"].append(float(loss) if loss is not None else None)
            seen["messages"].append(sent["messages"])
            seen["forwards"].append(max(forwards, default=0))
            seen["alive"].append(activations.most)
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
                seen["got"] = [numbers(batch) for batch in islice(got, FIRST if not done else THEN)]


def numbers(batch: object) -> list[int] | str:
    """Of one batch; or what the learner's function gives in place of one."""
    return [int(number) for number in batch] if isinstance(batch, Iterable) else repr(batch)


if __name__ == "__main__":
    main(*sys.argv[1:])
