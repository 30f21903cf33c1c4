"""Runs inside a rank, around a learner's script, for lesson 07: ``bucket_harness.py MODE SCRIPT SEED``.

MODE is "choose" (07.1), "accumulate" (07.2) or "count" (07.3). The script is run under another name than ``__main__``,
so that it only defines its functions; then they are called with data of ours. What was seen is left in seen.json beside
the rank's logs.
"""

# No `from __future__ import annotations` here: DDP compares the annotations of a communication hook with the types.
import math
import runpy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ddp_helpers.exercises import bucket_problem, note

GROUPS = ((12, 4), (10, 4), (5, 1), (2, 3))  # so many micro-batches, in groups of so many
LR, FEATURES, SAMPLES = 0.2, 3, 4

Seen = dict[str, Any]


def main(mode: str, script: str, seed: str) -> None:
    functions = runpy.run_path(script, run_name="checked")
    dist.init_process_group("gloo")
    seen: Seen = {}
    try:
        {"choose": choose, "accumulate": accumulate, "count": count}[mode](functions, int(seed), seen)
    finally:
        note.leave(seen)
    dist.barrier()
    dist.destroy_process_group()


# ---- 07.1 -----------------------------------------------------------------------------------------------------------


def choose(functions: dict[str, Any], seed: int, seen: Seen) -> None:
    seen["finish"], seen["choice"] = [], []
    for problem in bucket_problem.problems(seed):
        given = bucket_problem.as_arguments(problem)
        answers = [functions["finish"](cap_mb=cap, **given) for cap in bucket_problem.CAPS]
        seen["finish"].append([number_or_text(answer) for answer in answers])
        seen["choice"].append(number_or_text(functions["choose"](caps=list(bucket_problem.CAPS), **given)))
    net = torch.nn.Sequential(*[torch.nn.Linear(150 + 10 * n, 160 + 10 * n) for n in range(6)])
    sizes = [parameter.nbytes for parameter in net.parameters()][::-1]
    seen["by_hand"] = [sum(sizes[n] for n in bucket) for bucket in functions["positions"](list(sizes), 0.3)]
    seen["by_ddp"] = real_buckets(net, 0.3, torch.rand(2, 150))


def number_or_text(answer: object) -> float | str:
    """A number, also out of a tensor or an array; whatever else it is, as it prints."""
    if isinstance(answer, torch.Tensor | np.ndarray | np.generic) and math.prod(answer.shape) == 1:
        answer = answer.item()
    return float(answer) if isinstance(answer, int | float) else repr(answer)


def real_buckets(net: torch.nn.Module, cap_mb: float, x: torch.Tensor) -> list[int]:
    """What DDP sends in its second step."""
    model: Any = DistributedDataParallel(net, bucket_cap_mb=cap_mb)
    sent: list[int] = []
    model.register_comm_hook(sent, count_bytes)
    model(x).sum().backward()
    sent.clear()
    model(x).sum().backward()
    return sent


def count_bytes(sent: list[Any], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    sent.append(bucket.buffer().nbytes)
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    done: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
    return done


# ---- 07.2 -----------------------------------------------------------------------------------------------------------


class Events:
    """A letter for each thing that happens: f forward, b backward, A gradients sent, s step, z gradients cleared."""

    def __init__(self) -> None:
        self.text = ""

    def add(self, letter: str) -> None:
        self.text += letter


def accumulate(functions: dict[str, Any], seed: int, seen: Seen) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    seen["trials"] = []
    for count, every in GROUPS:
        numbers = torch.Generator().manual_seed(seed)
        shape = (count, world, SAMPLES)
        x = torch.randn(*shape, FEATURES, generator=numbers)
        y = torch.randn(*shape, 1, generator=numbers)
        events, net = Events(), torch.nn.Linear(FEATURES, 1)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=numbers))
        start = [parameter.detach().double() for parameter in net.parameters()]
        model, optimizer = watched(net, events)
        optimizer.zero_grad()
        events.text = ""
        functions["train"](model, optimizer, [(x[n, rank], y[n, rank]) for n in range(count)], every)
        found = [parameter.detach().double() for parameter in net.parameters()]
        seen["trials"].append(
            {
                "count": count,
                "every": every,
                "events": events.text,
                "weights": describe(found, start, (x.double(), y.double()), every),
                "first": found[0].flatten()[0].item(),
            }
        )


def watched(net: torch.nn.Module, events: Events) -> tuple[Any, torch.optim.Optimizer]:
    model: Any = DistributedDataParallel(net)

    def send(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        events.add("A")
        return count_bytes([], bucket)

    def forward(module: Any, inputs: Any, output: torch.Tensor) -> None:
        events.add("f")
        output.register_hook(lambda _: events.add("b"))

    no_sync: Callable[[], Any] = model.no_sync

    def noted() -> Any:
        events.add("n")
        return no_sync()

    model.register_comm_hook(None, send)
    model.no_sync = noted
    net.register_forward_hook(forward)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    register_optimizer_step_pre_hook(lambda *_: events.add("s"))
    return model, optimizer


Data = tuple[torch.Tensor, torch.Tensor]
MISTAKES = ("sums", "divided by every", "never cleared", "divided by all", "divided by ranks", "last only")


def describe(found: list[torch.Tensor], start: list[torch.Tensor], data: Data, every: int) -> str:
    """Whose weights these are: "right", a known mistake, or "other"."""
    for name in ("right", *MISTAKES):
        wanted = descend(start, data, every, name)
        if all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, wanted, strict=True)):
            return name
    return "other"


def descend(start: list[torch.Tensor], data: Data, every: int, mistake: str) -> list[torch.Tensor]:
    """One process, each group in one batch, gradient descent by hand, in 64 bits."""
    x, y = data
    weight, bias = start
    kept = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for first in range(0, len(x), every):
        group = slice(first, first + every)
        size = len(x[group])
        used = slice(first + size - 1, first + size) if mistake == "last only" else group
        error = x[used].flatten(0, 2) @ weight.T + bias - y[used].flatten(0, 2)
        gradients = [2 * error.T @ x[used].flatten(0, 2) / len(error), 2 * error.mean(0)]
        factors = {"sums": size, "divided by every": size / every, "divided by all": size / len(x)}
        factor = (factors | {"divided by ranks": 1 / x.shape[1], "last only": 1 / size}).get(mistake, 1.0)
        kept = [g * factor + k * (mistake == "never cleared") for g, k in zip(gradients, kept, strict=True)]
        weight, bias = weight - LR * kept[0], bias - LR * kept[1]
    return [weight, bias]


# ---- 07.3 -----------------------------------------------------------------------------------------------------------


def count(functions: dict[str, Any], seed: int, seen: Seen) -> None:
    seen["models"] = []
    for dtype in (torch.float32, torch.float64):
        seen["models"].append(judge_hook(functions["count"], seed, dtype))


def judge_hook(hook: Callable[..., Any], seed: int, dtype: torch.dtype) -> Seen:
    """Three steps of a model with several buckets: the bytes counted, and what the last gradient is."""
    rank, world, numbers = dist.get_rank(), dist.get_world_size(), torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = torch.nn.Sequential(*[torch.nn.Linear(6, 6) for _ in range(3)]).to(dtype)
    model = DistributedDataParallel(net, bucket_cap_mb=0.0001)  # 104 bytes
    state: dict[str, Any] = {"bytes": 0}
    buckets: list[int] = []
    model.register_comm_hook(state, checked(hook, buckets))
    x = torch.randn(world, 4, 6, generator=numbers).to(dtype)
    parameters = list(net.parameters())
    for _ in range(3):
        net.zero_grad()
        mse_loss(model(x[rank]), torch.zeros(4, 6, dtype=dtype)).backward()
    found = torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in parameters])
    alone = [gradient(net, x[number]) for number in range(world)]
    average, own = torch.stack(alone).mean(0), alone[rank]
    candidates = {
        "right": average,
        "sum": average * world,
        "own": own,
        "divided twice": average / world,
        "own, divided": own / world,
        "divided by 2": average * world / 2,
    }
    rtol, atol = (1e-4, 1e-6) if dtype == torch.float32 else (1e-9, 1e-12)
    names = [name for name, value in candidates.items() if torch.allclose(found, value, rtol=rtol, atol=atol)]
    if not names and (found - average).norm() < 0.01 * average.norm():
        names = ["rounded"]
    size = sum(p.nbytes for p in parameters)
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "gradient": names[0] if names else "other",
        "bytes": number_or_text(state.get("bytes")),
        "size": size,
        "buckets": buckets,
        "numbers": sum(p.numel() for p in parameters),
        "value": found[0].item(),
        "wanted": average[0].item(),
    }


def checked(hook: Callable[..., Any], buckets: list[int]) -> Callable[..., Any]:
    """The same hook, with an error where it returns no Future: DDP may end the process then, without a word.

    `buckets` gets the bytes of each bucket.
    """

    def call(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets.append(bucket.buffer().nbytes)
        result = hook(state, bucket)
        if not isinstance(result, torch._C.Future):  # torch.futures.Future is one, and so is that of a Work
            raise TypeError(f"the hook returned {type(result).__name__}, not a Future")
        return result

    return call


def gradient(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = mse_loss(net(x), torch.zeros(4, 6, dtype=x.dtype))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])


if __name__ == "__main__":
    main(*sys.argv[1:])
