"""Runs inside a rank, around a learner's script, for the exercises of lesson 03:
``ddp_harness.py WHAT SCRIPT SEED [BACKEND]``.

WHAT is "share" (03.1: the script's share() is given other models), "losses" (03.2: its to_backward() is given other
losses), or a name in TRAININGS (03.3 to 03.5: the script trains on digits in another order). Beside it stands the
truth: the same in one process, with code of our own and no collective. Both go to seen.json beside the rank's logs.
BACKEND is what dist.get_backend() answers to the script, whatever is the case.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ddp_helpers.exercises import note

KINDS = ("plain", "tied", "frozen")
HELD_OUT = range(1700, 1797)
BATCH = 48  # divides by 1, 2, 3 and 4


@dataclass(frozen=True)
class Training:
    steps: int
    lr: float
    weight_decay: float = 0.0


TRAININGS = {
    "checkpoint": Training(20, 0.5),
    "jumps": Training(20, 1.0, 0.01),
    "accuracy": Training(30, 0.5),
}


def main(what: str, script: str, seed: str, backend: str = "") -> None:
    watch = Watch()
    with the_group_stays():
        if what in TRAININGS:
            with other_digits(int(seed)):
                with said_to_be(backend), saved_aside(watch.saved), counted(watch):
                    watch.run(script)
                seen = judge_training(watch, TRAININGS[what])
        else:
            watch.run(script)
            seen = judge_share(watch.globals, int(seed)) if what == "share" else judge_losses(watch.globals, int(seed))
    note.leave(seen)
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def the_group_stays() -> Iterator[None]:
    """The script leaves the group at its end; we still need it after that."""
    leave = dist.destroy_process_group
    dist.destroy_process_group = lambda *_, **__: None
    try:
        yield
    finally:
        dist.destroy_process_group = leave


@contextmanager
def said_to_be(backend: str) -> Iterator[None]:
    """dist.get_backend() answers `backend`; torch itself asks elsewhere."""
    get_backend = dist.get_backend
    if backend:
        dist.get_backend = lambda *_, **__: backend
    try:
        yield
    finally:
        dist.get_backend = get_backend


@contextmanager
def saved_aside(saved: list[tuple[str, Any]]) -> Iterator[None]:
    """What the script saves goes beside the logs, not over the learner's own file, and is noted in `saved`."""
    save, load, folder = torch.save, torch.load, note.place().parent.parent

    def aside(file: Any) -> Any:
        return folder / Path(file).name if isinstance(file, str | os.PathLike) else file

    def save_aside(thing: Any, f: Any, *args: Any, **options: Any) -> None:
        copied = {name: value.clone() for name, value in thing.items()} if is_state(thing) else thing
        saved.append((str(f), copied))
        save(thing, aside(f), *args, **options)

    def load_aside(f: Any, *args: Any, **options: Any) -> Any:
        return load(aside(f), *args, **options)

    torch.save, torch.load = save_aside, load_aside
    try:
        yield
    finally:
        torch.save, torch.load = save, load


def is_state(thing: Any) -> bool:
    """Is that what state_dict() gives: tensors by their names?"""
    return isinstance(thing, dict) and all(isinstance(value, torch.Tensor) for value in thing.values())


@contextmanager
def counted(watch: Watch) -> Iterator[None]:
    """Count the numbers that the script itself sends with all_reduce; DDP's own messages do not come this way."""
    all_reduce = dist.all_reduce

    def count(tensor: Any, *args: Any, **options: Any) -> Any:
        watch.sent += tensor.numel()
        return all_reduce(tensor, *args, **options)

    dist.all_reduce = count
    try:
        yield
    finally:
        dist.all_reduce = all_reduce


# ---- 03.1: share() --------------------------------------------------------------------------------------------------


def judge_share(script: dict[str, Any], seed: int) -> dict[str, Any]:
    share = script.get("share")
    if not callable(share):
        return {"missing": "share"}
    return {kind: judge_kind(share, kind, seed) for kind in KINDS}


def make_model(kind: str) -> torch.nn.Module:
    first, second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
    if kind == "tied":
        second.weight = first.weight
    for parameter in first.parameters():
        parameter.requires_grad_(kind != "frozen")
    return torch.nn.Sequential(first, torch.nn.Tanh(), second, torch.nn.Tanh(), torch.nn.Linear(6, 2))


def judge_kind(share: Callable[[Any], Any], kind: str, seed: int) -> dict[str, Any]:
    """What share() does to a model of this kind: to its weights, to the first gradient, and over some steps."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed + rank)
    model = make_model(kind)
    returned = share(model)
    torch.manual_seed(seed)
    truth = make_model(kind)  # as rank 0 made it
    starts = {name: parameter.flatten()[0].item() for name, parameter in model.named_parameters()}
    wrong = [name for (name, a), b in zip(truth.named_parameters(), model.parameters(), strict=False) if apart(a, b)]
    numbers = torch.Generator().manual_seed(seed)
    x, y = torch.randn(12, 6, generator=numbers), torch.randn(12, 2, generator=numbers)
    own = gradients(truth, x[rank::world], y[rank::world])
    right, found = gradients(truth, x, y), gradients(model, x[rank::world], y[rank::world])
    same_parts = found.shape == right.shape
    place = at(found - right) if same_parts else 0
    for _ in range(3):
        for net, part in ((model, slice(rank, None, world)), (truth, slice(None))):
            gradients(net, x[part], y[part])
            descend(net, 0.3)
    return {
        "wrong": wrong,
        "starts": starts,
        "untied": len(list(model.parameters())) != len(list(truth.parameters())),
        "complete": same_parts,
        "gradient": describe(found, right, own, world) if same_parts else "",
        "value": found[place].item() if same_parts else 0.0,
        "right": right[place].item(),
        "later": same_parts
        and apart(parameters_to_vector(model.parameters()), parameters_to_vector(truth.parameters())),
        "wrapper": isinstance(returned, torch.nn.Module) and returned is not model,
    }


def gradients(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """backward() as in a plain loop, and all gradients in one row."""
    for parameter in model.parameters():
        parameter.grad = None
    ((model(x) - y) ** 2).mean().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def descend(model: torch.nn.Module, lr: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= lr * parameter.grad


def apart(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    return a.shape != b.shape or not torch.allclose(a, b, rtol=1e-4, atol=tolerance)


def at(difference: torch.Tensor) -> int:
    """Where to look: at the element that is off by most."""
    return int(difference.abs().argmax())


def describe(found: torch.Tensor, right: torch.Tensor, own: torch.Tensor, world: int) -> str:
    """What a gradient is: "right", or which known mistake it equals, or "other"."""
    candidates = {
        "right": right,
        "own": own,
        "summed": right * world,
        "divided twice": right / world,
        "own, divided": own / world,
    }
    return next((name for name, gradient in candidates.items() if not apart(found, gradient, 1e-6)), "other")


# ---- 03.2: to_backward() --------------------------------------------------------------------------------------------


def judge_losses(script: dict[str, Any], seed: int) -> dict[str, Any]:
    to_backward = script.get("to_backward")
    if not callable(to_backward):
        return {"missing": "to_backward"}
    world = dist.get_world_size()
    numbers = np.random.default_rng(seed)
    unequal = [int(n) for n in numbers.permutation(np.arange(world) * 3 + 1)]
    return {
        name: judge_split(to_backward, sizes, seed) for name, sizes in (("unequal", unequal), ("equal", [3] * world))
    }


def judge_split(to_backward: Callable[[Any], Any], sizes: list[int], seed: int) -> dict[str, Any]:
    """The gradient that DDP averages from to_backward(), for ranks with so many samples."""
    rank = dist.get_rank()
    numbers = torch.Generator().manual_seed(seed)
    shards = [3 * number + torch.rand(size, 3, generator=numbers) for number, size in enumerate(sizes)]
    weight = torch.randn(1, 3, generator=numbers)
    linear = torch.nn.Linear(3, 1, bias=False)
    linear.weight.data.copy_(weight)
    model = DistributedDataParallel(linear)
    to_backward((model(shards[rank]).squeeze(1) - 1) ** 2).backward()

    def of(*rows: torch.Tensor) -> torch.Tensor:
        """The gradient of the sum of these samples' losses, by hand."""
        x = torch.cat(rows)
        return 2 * ((x @ weight.T) - 1).T @ x

    count, world = sum(sizes), len(sizes)
    right = of(*shards) / count
    by_rank = torch.stack([of(shard) / len(shard) for shard in shards]).mean(0)
    candidates = {
        "right": right,
        "one vote a rank": by_rank,
        "divided twice": right / world,
        "a sum": right * count,
        "sums averaged": right * count / world,
        "one vote a rank, summed": by_rank * world,
        "summed": right * world,
        "written for 6 + 2": right * count / 8 * 2 / world,
        "written for 8 samples": right * count / 8,
        "written for 2 ranks": right * 2 / world,
    }
    found = linear.weight.grad
    names = [name for name, gradient in candidates.items() if not apart(found, gradient, 1e-6)]
    place = at((found - right).flatten())
    values = {"value": found.flatten()[place].item(), "right": right.flatten()[place].item()}
    return {"sizes": sizes, "gradient": names[0] if names else "other", **values}


# ---- 03.3 to 03.5: a script that trains on the digits ---------------------------------------------------------------


class Watch:
    """Runs a script, and sees what it trains: with which optimizer, on how many samples, through which wrapper."""

    def __init__(self) -> None:
        self.globals: dict[str, Any] = {}
        self.samples = self.wrapped_calls = self.averaged_calls = self.steps = self.sent = 0
        self.saved: list[tuple[str, Any]] = []
        self.held_out: set[bytes] = set()  # images of these that were looked at
        self.first: torch.Tensor | None = None
        self.optimizer: Any = None

    def run(self, script: str) -> None:
        handles = [
            torch.nn.modules.module.register_module_forward_hook(self._forward),
            register_optimizer_step_pre_hook(self._step),
        ]
        sys.argv[:] = [script]
        sys.path[0] = str(Path(script).parent)
        self.globals = runpy.run_path(script, run_name="__main__")
        for handle in handles:
            handle.remove()

    def _forward(self, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(module, DistributedDataParallel) and torch.is_grad_enabled():
            self.wrapped_calls += 1
            self.averaged_calls += module.require_backward_grad_sync
        if isinstance(module, torch.nn.Linear) and module.in_features == 64:
            self.held_out |= {row.numpy().tobytes() for row in inputs[0].detach()}
            if output.requires_grad:  # a sample counts when backward comes back to it: some forwards are only to look
                output.register_hook(self._trained_on)

    def _trained_on(self, gradient: torch.Tensor) -> None:
        self.samples += len(gradient)

    def _step(self, optimizer: Any, *_: Any) -> None:
        self.steps += 1
        if self.first is None:
            self.optimizer = optimizer
            grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters()]
            self.first = parameters_to_vector(grads).clone()

    def parameters(self) -> list[Any]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


class Arrays(dict[str, Any]):
    """Used as np.load's own: data["images"], data.files, and in a with statement."""

    @property
    def files(self) -> list[str]:
        return list(self)

    def __enter__(self) -> Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def other_digits(seed: int) -> Iterator[None]:
    """np.load gives the digits in another order. Among the held-out ones, half of the last rank's labels are made
    wrong, so that the ranks' accuracies differ."""
    load = np.load

    def load_shuffled(*args: Any, **options: Any) -> Arrays:
        with load(*args, **options) as data:
            order = np.random.default_rng(seed).permutation(len(data["labels"]))
            images, labels = data["images"][order], data["labels"][order]
        world = int(os.environ["WORLD_SIZE"])
        if world > 1:
            spoiled = slice(HELD_OUT.start + world - 1, HELD_OUT.stop, 2 * world)
            labels[spoiled] = (labels[spoiled] + 1) % 10
        return Arrays(images=images, labels=labels)

    np.load = load_shuffled
    try:
        yield
    finally:
        np.load = load


def judge_training(watch: Watch, training: Training) -> dict[str, Any]:
    if watch.optimizer is None:
        return {"missing": "an optimizer that makes a step"}
    world = dist.get_world_size() if dist.is_initialized() else 1
    first, weights, correct = train_alone(training)
    found = watch.first if watch.first is not None else torch.zeros_like(first)
    mine = parameters_to_vector(watch.parameters()).detach()
    if found.shape != first.shape:
        return {"missing": "the model of the broken script, with all of its parameters in the optimizer"}
    rank, place = int(os.environ["RANK"]), at(found - first)
    held_out = torch.from_numpy(np.load("../data/digits.npz")["images"])[HELD_OUT.start : HELD_OUT.stop]
    rows = {row.numpy().tobytes() for row in held_out.flatten(1) / 16}
    return {
        "samples": watch.samples,
        "share": training.steps * BATCH // world,
        "steps": watch.steps,
        "wanted_steps": training.steps,
        "wrapped_calls": watch.wrapped_calls,
        "wrapper": any(isinstance(value, DistributedDataParallel) for value in watch.globals.values()),
        "lr": float(watch.optimizer.param_groups[0]["lr"]),
        "gradient": found[place].item(),
        "right_gradient": first[place].item(),
        "first_is_right": not apart(found, first, 1e-6),
        "weights": mine.tolist(),
        "off": (mine - weights).abs().max().item(),
        "correct": [int(correct[share::world].sum()) for share in range(world)],
        "sizes": [len(HELD_OUT[share::world]) for share in range(world)],
        "looked_at": len(rows & watch.held_out),
        "sent": watch.sent,
        "averaged_calls": watch.averaged_calls,
        "parameters": len(first),
        "saved": [describe_saved(path, thing, weights) for path, thing in watch.saved],
        "rank": rank,
    }


def describe_saved(path: str, thing: Any, right: torch.Tensor) -> dict[str, Any]:
    """A checkpoint: where to, whose names are in it, and how far its weights are off."""
    if not is_state(thing) or not thing:
        return {"path": path, "kind": type(thing).__name__, "names": [], "off": None}
    values = parameters_to_vector(thing.values())
    off = (values - right).abs().max().item() if values.shape == right.shape else None
    return {"path": path, "kind": "state", "names": list(thing), "off": off}


def train_alone(training: Training) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One process, whole batches, and gradient descent by hand: the first gradient, the weights, and for each held-out
    digit whether it is recognised."""
    data = np.load("../data/digits.npz")
    images = torch.from_numpy(data["images"]).flatten(1) / 16
    labels = torch.from_numpy(data["labels"]).long()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    parameters = list(model.parameters())
    first = torch.empty(0)
    for step in range(training.steps):
        batch = slice(BATCH * step, BATCH * (step + 1))
        grads = torch.autograd.grad(cross_entropy(model(images[batch]), labels[batch]), parameters)
        if step == 0:
            first = torch.cat([grad.flatten() for grad in grads])
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter -= training.lr * (grad + training.weight_decay * parameter)
    held_out = slice(HELD_OUT.start, HELD_OUT.stop)
    with torch.no_grad():
        correct = model(images[held_out]).argmax(1) == labels[held_out]
    return first, parameters_to_vector(parameters).detach(), correct


if __name__ == "__main__":
    main(*sys.argv[1:])
