"""Fit the model to measurements by least squares, and say how sure that is.

Times differ by factors of a thousand, so that errors count as factors: the logarithms are compared, and twice the time
is as bad as half of it. No unknown may be below zero. The uncertainty is a bootstrap of the residuals: errors like
those that were seen are dealt anew to the fitted values, and everything is fitted again. What is left over counts as
noise, whatever its cause. The range is rough for few measurements, and what the model leaves out is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from .model import Link, Work, communication, ring_bytes, ring_messages

if TYPE_CHECKING:
    from numpy import ndarray as Array

REPEATS = 200
LOW, HIGH = 5, 95  # percentiles of what the repeats predict
PASSES = 8  # of the fit in logarithms, at most
SMALLEST = 1e-12  # seconds: in place of a latency or a time a byte that comes out as zero

Value = TypeVar("Value")


class Range(NamedTuple):
    """A value, and where 90 of 100 repeats of the fit put it: with few measurements, roughly where the truth lies."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fitted(Generic[Value]):
    """The best fit; those of the repeats; and by how many percent it misses its own measurements (the median)."""

    best: Value
    repeats: tuple[Value, ...]
    error_percent: float


def fit_link(times: Mapping[int, tuple[Sequence[float], Sequence[float]]]) -> Fitted[Link]:
    """Latency and bandwidth from measured all_reduces: world size → (sizes in bytes, seconds).

        fit_link({2: ([1e3, 1e5, 1e7], [2e-4, 4e-4, 2e-2]), 4: ([1e3, 1e7], [6e-4, 3e-2])}).best

    Raises ValueError for fewer than three measurements: of two unknowns, one must be left to tell how sure they are.
    """
    rows = [
        (ring_messages(ranks), ring_bytes(ranks) * size, time)
        for ranks, (sizes, seconds) in times.items()
        for size, time in zip(sizes, seconds, strict=True)
    ]
    return _fitted(rows, lambda found: Link(max(float(found[0]), SMALLEST), 1 / max(float(found[1]), SMALLEST)))


def fit_work(batches: Sequence[float], seconds: Sequence[float], size: float, backward: float = 2 / 3) -> Fitted[Work]:
    """What a step computes, from the steps of one process with different batches. Raises ValueError as fit_link."""
    rows = [(1.0, float(batch), time) for batch, time in zip(batches, seconds, strict=True)]
    return _fitted(rows, lambda found: Work(float(found[0]), float(found[1]), size, backward))


def overlap_of(work: Work, link: Link, ranks: int, batch: float, measured: float) -> float:
    """The share of backward that must have hidden communication, if a step took `measured` seconds; 0 to 1."""
    compute = work.compute(batch)
    hidden = communication(link, ranks, work.size) - max(0.0, measured - compute)
    return min(1.0, max(0.0, hidden / (work.backward * compute)))


def predicted(work: Fitted[Work], link: Fitted[Link], ask: Callable[[Work, Link], float]) -> Range:
    """What the fit predicts: `predicted(work, link, lambda w, c: speed_up(w, c, 64, 32))`."""
    import numpy as np

    asked = [ask(*pair) for pair in zip(work.repeats, link.repeats, strict=True)]
    low, high = np.percentile(asked, [LOW, HIGH])
    return Range(ask(work.best, link.best), float(low), float(high))


def least_squares(matrix: Array, times: Array, target: Array | float = 1.0) -> Array:
    """The x ≥ 0 that makes (matrix @ x) / times miss the target by the least: in percent of the times.

    There are two or three unknowns, so that all choices of those that are above zero can be tried.
    """
    import numpy as np

    scaled, aims = matrix / times[:, None], np.broadcast_to(target, len(times))
    best, missed = np.zeros(matrix.shape[1]), float((aims**2).sum())
    for chosen in product((True, False), repeat=matrix.shape[1]):
        if not any(chosen):
            continue
        columns = scaled[:, chosen]
        size = np.linalg.norm(columns, axis=0)  # bytes and messages differ by many powers of ten
        found = np.linalg.lstsq(columns / size, aims, rcond=None)[0] / size
        miss = float(((columns @ found - aims) ** 2).sum())
        if (found >= 0).all() and miss < missed - 1e-15:
            best, missed = np.zeros(matrix.shape[1]), miss
            best[list(chosen)] = found
            if all(chosen):  # without the bound nothing is better
                break
    return best


def least_log_squares(matrix: Array, times: Array, start: Array | None = None) -> Array:
    """The x ≥ 0 that makes log(matrix @ x) miss the logarithms of the times by the least, found from `start` on.

    In percent of the time a guess can be too low by 100 at most and too high by any number, so that noise would pull
    the fit down. Each pass replaces the logarithm by its tangent at the last guess.
    """
    import numpy as np

    found = least_squares(matrix, times) if start is None else start
    for _ in range(PASSES):
        guess = np.maximum(matrix @ found, SMALLEST)
        # log(new) = log(guess) + new/guess - 1: that is to be log(time)
        target = np.maximum(1 + np.log(times / guess), 0.05)
        before, found = found, least_squares(matrix, guess, target)
        if np.allclose(found, before, rtol=1e-3, atol=0):
            break
    return found


def _fitted(rows: Sequence[tuple[float, float, float]], make: Callable[[Array], Value]) -> Fitted[Value]:
    import numpy as np

    table = np.asarray(rows, dtype=float).reshape(-1, 3)
    matrix, times = table[:, :2], table[:, 2]
    count, unknowns = matrix.shape
    if count <= unknowns or not (times > 0).all():
        raise ValueError(f"a fit of {unknowns} unknowns needs {unknowns + 1} times above 0 or more, not {count}")
    best = least_log_squares(matrix, times)
    on_line = matrix @ best
    errors = np.log(times / on_line)
    # A fit takes part of the noise into itself: with few measurements its own errors are too small by this factor.
    wider = (errors - errors.mean()) * (count / (count - unknowns)) ** 0.5
    generator = np.random.default_rng(0)
    noisy = (on_line * np.exp(generator.choice(wider, count)) for _ in range(REPEATS))
    again = [least_log_squares(matrix, dealt, best) for dealt in noisy]
    percent = 100 * float(np.median(np.abs(times / on_line - 1)))
    return Fitted(make(best), tuple(map(make, again)), percent)
