"""What the eight scripts of lesson 09's clinic should compute: in one process, and with no collective.

``digits(seed, …)`` are the data that a mended script is checked with; ``TRUTHS[patient](images, labels, world)`` is the
right result beside known wrong ones, or the right weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

TRAINED, HELD_OUT = range(1700), range(1700, 1797)
BATCH = 48  # divides by 1, 2, 3 and 4
SHIFTS, SHIFTED = 8, 960
DAMAGED = 101


def digits(load: Callable[..., Any], path: str, seed: int, patient: int, world: int) -> dict[str, Any]:
    """The digits in another order. For patient 7 each of two ranks has every digit, and the last of more has not."""
    orders = np.random.default_rng(seed)
    with load(path) as data:
        order = orders.permutation(len(data["labels"]))
        while patient == 7 and world == 2 and not _on_all_ranks(data["labels"][order], world):
            order = orders.permutation(len(data["labels"]))
        images, labels = data["images"][order], data["labels"][order]
    if patient == 4:  # the last one is right: it must be missed when it is left out
        hits = nearest(torch.from_numpy(images).flatten(1) / 16, torch.from_numpy(labels).long())
        swap(images, labels, HELD_OUT[-1], HELD_OUT[int(hits.nonzero()[0])])
    if patient == 7 and world > 2:
        last = [number for number in HELD_OUT if (number - HELD_OUT.start) % world == world - 1]
        missing = labels[last[0]]
        others = [number for number in HELD_OUT if number not in last and labels[number] != missing]
        for here, there in zip([number for number in last if labels[number] == missing], others, strict=False):
            swap(images, labels, here, there)
    return {"images": images, "labels": labels}


def _on_all_ranks(labels: Any, world: int) -> bool:
    return all(len(set(labels[share])) == 10 for share in shares(HELD_OUT, world))


def swap(images: Any, labels: Any, here: int, there: int) -> None:
    images[[here, there]], labels[[here, there]] = images[[there, here]], labels[[there, here]]


def shares(numbers: range, world: int) -> list[list[int]]:
    return [list(numbers[rank::world]) for rank in range(world)]


def batches(steps: int) -> Iterator[range]:
    return (range(BATCH * step, BATCH * (step + 1)) for step in range(steps))


def descend(model: torch.nn.Module, loss: torch.Tensor, lr: float) -> None:
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter -= lr * gradient


def by_shape(parameters: Iterable[Any]) -> dict[str, list[float]]:
    """Parameters by their shapes, and numbered where two have the same: names depend on how one wraps."""
    named: dict[str, list[float]] = {}
    for parameter in parameters:
        shape = str(tuple(parameter.shape))
        number = 1 + sum(name.startswith(shape) for name in named)
        named[shape if number == 1 else f"{shape} no. {number}"] = parameter.detach().flatten().tolist()
    return named


# ---- one by one -----------------------------------------------------------------------------------------------------


def ink(images: Any, labels: Any, world: int) -> dict[str, Any]:
    scans = images[:9].double().mean(1)
    size = -(-9 // world)
    means = [scans[start : start + size].mean().item() for start in range(0, 9, size)]
    return {
        "right": scans.mean().item(),
        "an empty rank votes 0": sum(means) / world,
        "one vote a rank": sum(means) / len(means),
        "own": means[0],
        "a sum": scans.sum().item(),
        "sums over ranks": scans.sum().item() / world,
    }


def last_loss(images: Any, labels: Any, world: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    for batch in batches(10):
        loss = cross_entropy(model(images[batch]), labels[batch])
        own = cross_entropy(model(images[batch[::world]]), labels[batch[::world]])
        descend(model, loss, 0.5)
    return {
        "right": loss.item(),
        "own": own.item(),
        "a sum": loss.item() * world,
        "divided twice": loss.item() / world,
        "own, divided": own.item() / world,
        "written for 2": loss.item() * world / 2,
    }


@torch.no_grad()
def shifted_loss(images: Any, labels: Any, world: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
    of_rank = [torch.zeros(SHIFTS, dtype=torch.double) for _ in range(world)]
    for rank, mine in enumerate(shares(range(SHIFTED), world)):
        for shift in range(SHIFTS):
            outputs = model(images[mine].roll(shift, dims=1))
            of_rank[rank][shift] = cross_entropy(outputs, labels[mine], reduction="sum").item()
    count = SHIFTS * SHIFTED
    return {"right": sum(losses.sum().item() for losses in of_rank) / count, "own": of_rank[0].sum().item() / count}


def nearest(images: Any, labels: Any) -> Any:
    """Which of the held-out digits the nearest mean of a digit names rightly."""
    known = labels[: TRAINED.stop]
    centres = torch.stack([images[: TRAINED.stop][known == digit].mean(0) for digit in range(10)])
    return torch.cdist(images[TRAINED.stop :], centres).argmin(1) == labels[TRAINED.stop :]


def accuracy(images: Any, labels: Any, world: int) -> dict[str, Any]:
    hits, total = nearest(images, labels), len(HELD_OUT)
    own = hits[::world]
    return {
        "right": hits.sum().item() / total,
        "own": own.sum().item() / total,
        "own share": own.sum().item() / len(own),
    }


def of_each_digit(images: Any, labels: Any, world: int) -> dict[str, Any]:
    hits, held_out = nearest(images, labels), labels[TRAINED.stop :]
    return {
        "right": [int(hits[held_out == digit].sum()) for digit in range(10)],
        "own": [int(hits[::world][held_out[::world] == digit].sum()) for digit in range(10)],
        "of": [int((held_out == digit).sum()) for digit in range(10)],
        "missing": sorted(set(range(10)) - set(held_out[world - 1 :: world].tolist())),
    }


def normalised(images: Any, labels: Any, world: int) -> dict[str, Any]:
    """Every rank normalises with its own batch; the statistics that last are those of rank 0."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
    )
    for batch in batches(20):
        parts = [cross_entropy(net(images[batch[::world]]), labels[batch[::world]])]
        kept = [buffer.clone() for buffer in net.buffers()]
        parts += [cross_entropy(net(images[mine]), labels[mine]) for mine in shares(batch, world)[1:]]
        descend(net, torch.stack(parts).mean(), 0.1)
        for buffer, value in zip(net.buffers(), kept, strict=True):
            buffer.copy_(value)
    kept_weights, parts = by_shape(net.parameters()), images[TRAINED.stop :].split(7)
    found = {}
    with torch.no_grad():
        for mode in (False, True):
            net.train(mode)
            found[mode] = torch.cat([net(part) for part in parts]).argmax(1) == labels[TRAINED.stop :]
    return {
        "right": found[False].double().mean().item(),
        "in training mode": found[True].double().mean().item(),
        "weights": kept_weights,
    }


def with_a_head(images: Any, labels: Any, world: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    for batch in batches(20):
        descend(model, cross_entropy(model(images[batch]), labels[batch]), 0.5)
    return {"weights": by_shape(model.parameters())}


def without_the_damaged(images: Any, labels: Any, world: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    for batch in batches(8):
        if DAMAGED not in batch:
            descend(model, cross_entropy(model(images[batch]), labels[batch]), 0.5)
    return {"weights": by_shape(model.parameters())}


TRUTHS: dict[int, Callable[[Any, Any, int], dict[str, Any]]] = {
    1: ink,
    2: last_loss,
    3: shifted_loss,
    4: accuracy,
    5: normalised,
    6: with_a_head,
    7: of_each_digit,
    8: without_the_damaged,
}
