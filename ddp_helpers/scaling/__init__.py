"""How long a step takes on N ranks: a model, its fit to measurements, and the published figures it is held against.

model.py has the formulas and their sources, fit.py the least squares and how sure they are, published.py the check.
"""

from __future__ import annotations

from .fit import Fitted, Range, fit_link, fit_work, overlap_of, predicted
from .model import (
    Link,
    Work,
    communication,
    crossover,
    efficiency,
    exposed,
    largest,
    ring_bytes,
    ring_messages,
    speed_up,
    step,
)
from .published import Check, Series, held_out, link_from_bus_bandwidth, read_rows, series

__all__ = [
    "Check",
    "Fitted",
    "Link",
    "Range",
    "Series",
    "Work",
    "communication",
    "crossover",
    "efficiency",
    "exposed",
    "fit_link",
    "fit_work",
    "held_out",
    "largest",
    "link_from_bus_bandwidth",
    "overlap_of",
    "predicted",
    "read_rows",
    "ring_bytes",
    "ring_messages",
    "series",
    "speed_up",
    "step",
]
