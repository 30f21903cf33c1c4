"""The small problem on which the exercises of lesson 06 are judged: data, start, and the truth in 64 bits.

One linear layer with cross entropy, differentiated by hand: none of torch's autograd, DDP or autocast is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FEATURES, CLASSES, SAMPLES = 8, 4, 16
MICRO_SAMPLES = 4
SCALE = 65536.0  # GradScaler's first one


@dataclass(frozen=True)
class Taken:
    """One step of the truth: the mean loss (of one rank's samples, if asked for) and the weights after it."""

    loss: float
    weight: Array


def start(seed: int) -> Array:
    """The weights of all ranks, [classes, features + 1]; the last column is the bias."""
    return np.random.default_rng((seed, 0)).normal(size=(CLASSES, FEATURES + 1)).astype(np.float32)


def batch(seed: int, rank: int, step: int, samples: int = SAMPLES) -> tuple[Array, Array]:
    """A rank's samples for a step: x in [0, 0.9), so that no gradient overflows at the first scale."""
    random = np.random.default_rng((seed, 1, rank, step))
    return (random.random((samples, FEATURES)) * 0.9).astype(np.float32), random.integers(CLASSES, size=samples)


def micro_batches(seed: int) -> int:
    """How many there are in each step of exercise 06.3: not the same number for each seed."""
    return 2 + seed % 3


def loss_and_gradient(weight: Array, x: Array, y: Array) -> tuple[float, Array]:
    inputs = np.concatenate([x.astype(np.float64), np.ones((len(x), 1))], axis=1)
    logits = inputs @ weight.T
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(y)), y]).mean()
    shares[np.arange(len(y)), y] -= 1
    return float(loss), shares.T @ inputs / len(y)


def clipped(gradient: Array, max_norm: float) -> Array:
    """As clip_grad_norm_ defines it."""
    norm = float(np.sqrt((gradient**2).sum()))
    return gradient * min(1.0, max_norm / (norm + 1e-6))


def train(
    seed: int, batches: list[tuple[Array, Array]], lr: float, max_norms: list[float], skip: int = -1
) -> list[Taken]:
    """One process, all samples of all ranks in each batch; step `skip` leaves the weights alone."""
    weight, history = start(seed).astype(np.float64), []
    for step, ((x, y), max_norm) in enumerate(zip(batches, max_norms, strict=True)):
        loss, gradient = loss_and_gradient(weight, x, y)
        if step != skip:
            weight = weight - lr * clipped(gradient, max_norm)
        history.append(Taken(loss, weight))
    return history


def joined(seed: int, world: int, step: int, samples: int = SAMPLES) -> tuple[Array, Array]:
    shares = [batch(seed, rank, step, samples) for rank in range(world)]
    return np.concatenate([x for x, _ in shares]), np.concatenate([y for _, y in shares])
