"""Repeats of one measurement. (No torch here: the process that starts the checks has no need of it.)"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The median, and a low and a high beyond which a tenth of the repeats lies."""

    median: float
    low: float
    high: float
    repeats: int

    def rate(self, amount: float) -> Spread:
        """From seconds for `amount` of something to how much a second."""
        return Spread(amount / self.median, amount / self.high, amount / self.low, self.repeats)


def spread(values: Iterable[float]) -> Spread:
    """At least two values."""
    found = list(values)
    tenths = statistics.quantiles(found, n=10, method="inclusive")
    return Spread(statistics.median(found), tenths[0], tenths[-1], len(found))
