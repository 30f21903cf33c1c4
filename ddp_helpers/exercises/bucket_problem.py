"""What is right in exercise 07.1, and what typical mistakes give: a step's buckets, and when the last one is done.

Nothing here runs a collective. Harness and check both use it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any

CAPS = (0.001, 0.3, 0.7, 1.5, 3.0, 1000.0)  # MiB


@dataclass(frozen=True)
class Problem:
    """Gradients in the order of backward, and what a message costs: alpha + beta · bytes, in seconds."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    alpha: float
    beta: float


@dataclass(frozen=True)
class Bucket:
    """When its first gradient is there, the one before its last, and its last; how many it holds, and their bytes."""

    opened: float
    before: float
    complete: float
    count: int
    size: int


def problems(seed: int) -> list[Problem]:
    """Three: latency is little, or about as much as the rest, or nearly all."""
    numbers = random.Random(seed)
    found = []
    for alpha, beta in ((1e-5, 1e-9), (1e-3, 8e-9), (2e-2, 8e-9)):  # seconds; seconds for a byte, at most
        widths = [numbers.randrange(200, 400) for _ in range(7)]
        sizes = [size for a, b in pairwise(widths) for size in (4 * b, 4 * a * b)]
        seconds = [numbers.uniform(2e-4, 6e-4) for _ in sizes]
        found.append(Problem(tuple(sizes), tuple(seconds), alpha, beta * numbers.uniform(0.5, 1)))
    return found


def buckets(problem: Problem, cap_mb: float) -> list[Bucket]:
    """A bucket is closed by the gradient with which it reaches the cap."""
    ready = list(accumulate(problem.seconds))
    found, first = [], 0
    for n in range(len(ready)):
        size = sum(problem.sizes[first : n + 1])
        if size >= int(cap_mb * 2**20) or n == len(ready) - 1:
            found.append(Bucket(ready[first], ready[n - 1] if n else 0.0, ready[n], n + 1 - first, size))
            first = n + 1
    return found


def one_by_one(complete: Sequence[float], costs: Sequence[float]) -> float:
    """When the last is done. It waits for nobody, or for one before it, and then all from there on are in a row."""
    return max(complete[k] + sum(costs[k:]) for k in range(len(costs)))


def right(problem: Problem, cap_mb: float) -> float:
    return _right(problem, buckets(problem, cap_mb))


def _right(p: Problem, some: list[Bucket]) -> float:
    return one_by_one([b.complete for b in some], [p.alpha + p.beta * b.size for b in some])


def _no_overlap(p: Problem, some: list[Bucket]) -> float:
    return sum(p.seconds) + sum(p.alpha + p.beta * b.size for b in some)


def _all_at_once(p: Problem, some: list[Bucket]) -> float:
    return max(b.complete + p.alpha + p.beta * b.size for b in some)


def _last_alone(p: Problem, some: list[Bucket]) -> float:
    return some[-1].complete + p.alpha + p.beta * some[-1].size


def _own_seconds(p: Problem, some: list[Bucket]) -> float:
    ends = [0.0, *(b.complete for b in some)]
    return one_by_one([end - start for start, end in pairwise(ends)], [p.alpha + p.beta * b.size for b in some])


def _milliseconds(p: Problem, some: list[Bucket]) -> float:
    return 1e3 * _right(p, some)


def _from_the_end(p: Problem, some: list[Bucket]) -> float:
    return _right(p, some) - sum(p.seconds)


def _positions(p: Problem, some: list[Bucket]) -> float:
    starts = list(accumulate((b.count for b in some), initial=0))
    sums = [sum(range(start, end)) for start, end in pairwise(starts)]
    return one_by_one([b.complete for b in some], [p.alpha + p.beta * total for total in sums])


def _from_the_first(p: Problem, some: list[Bucket]) -> float:
    return one_by_one([b.opened for b in some], [p.alpha + p.beta * b.size for b in some])


def _before_the_last(p: Problem, some: list[Bucket]) -> float:
    return one_by_one([b.before for b in some], [p.alpha + p.beta * b.size for b in some])


def _communication(p: Problem, some: list[Bucket]) -> float:
    return sum(p.alpha + p.beta * b.size for b in some)


def _one_latency(p: Problem, some: list[Bucket]) -> float:
    return one_by_one([b.complete for b in some], [p.alpha * (n == 0) + p.beta * b.size for n, b in enumerate(some)])


def _one_latency_at_the_end(p: Problem, some: list[Bucket]) -> float:
    return p.alpha + one_by_one([b.complete for b in some], [p.beta * b.size for b in some])


def _no_latency(p: Problem, some: list[Bucket]) -> float:
    return one_by_one([b.complete for b in some], [p.beta * b.size for b in some])


def _latency_for_each(p: Problem, some: list[Bucket]) -> float:
    return one_by_one([b.complete for b in some], [p.alpha * b.count + p.beta * b.size for b in some])


def _bandwidth(p: Problem, some: list[Bucket]) -> float:
    return one_by_one([b.complete for b in some], [p.alpha + b.size / p.beta for b in some])


MISTAKES: dict[str, Callable[[Problem, list[Bucket]], float]] = {
    "no overlap": _no_overlap,
    "all at once": _all_at_once,
    "last alone": _last_alone,
    "own seconds": _own_seconds,
    "milliseconds": _milliseconds,
    "from the end": _from_the_end,
    "positions": _positions,
    "from the first": _from_the_first,
    "before the last": _before_the_last,
    "communication": _communication,
    "one latency": _one_latency,
    "one latency at the end": _one_latency_at_the_end,
    "no latency": _no_latency,
    "latency for each": _latency_for_each,
    "bandwidth": _bandwidth,
}


def same(value: object, wanted: float) -> bool:
    """Whether they are equal to what 32 bits can tell."""
    return isinstance(value, int | float) and abs(value - wanted) <= 1e-5 * abs(wanted)


def name_of(answers: Sequence[tuple[Problem, Sequence[Any]]]) -> str:
    """Which mistake gives all of these (one answer for each of CAPS), "right", or "other"."""
    for name, method in {"right": _right, **MISTAKES}.items():
        if all(
            same(value, method(problem, buckets(problem, cap)))
            for problem, values in answers
            for cap, value in zip(CAPS, values, strict=True)
        ):
            return name
    return "other"


def as_arguments(problem: Problem) -> dict[str, Any]:
    """As the learner's functions take them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(problem).items()}
