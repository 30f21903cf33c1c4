"""What others measured and published, and what the model makes of the first rows of it for the later ones."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .fit import SMALLEST, least_squares
from .model import Link, ring_bytes, ring_messages

Row = Mapping[str, str]
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Check(NamedTuple):
    """One published row: seconds of a step relative to the first row's, measured and predicted."""

    gpus: int
    measured: float
    predicted: float
    low: float
    """Predicted if all that was lost so far were bytes: one extreme of the model, not the end of a confidence band."""
    high: float
    """Predicted if all that was lost so far were latency."""
    fitted: bool
    """Whether the fit has seen this row."""
    note: str

    @property
    def error_percent(self) -> float:
        """By how much the predicted step is too long; below 0: the prediction was too good."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def within(self) -> bool:
        return self.low * 0.999 <= self.measured <= self.high * 1.001


@dataclass(frozen=True)
class Series:
    """One workload on more and more GPUs. `seconds` is the time of a step, in a unit of its own: only ratios count."""

    name: str
    source: str
    gpus: tuple[int, ...]
    seconds: tuple[float, ...]
    notes: tuple[str, ...]


def read_rows(path: str | Path, topic: str) -> list[dict[str, str]]:
    """The rows of data/published_figures.csv with this topic."""
    with open(path, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["topic"] == topic]


def series(rows: Sequence[Row]) -> Series:
    """The time of a step on each number of GPUs, if each GPU kept its batch (weak scaling).

    A source need not say so. Rows whose note says that the batch changed are kept, with their note: they may be another
    training. Raises ValueError for other units.
    """
    counts = [_gpus(row) for row in rows]
    seconds = [_seconds(row, gpus) for row, gpus in zip(rows, counts, strict=True)]
    name, source = f"{rows[0]['workload']}; hardware: {rows[0]['hardware']}", rows[0]["source"]
    return Series(name, source, tuple(counts), tuple(seconds), tuple(row["note"] for row in rows))


def held_out(figures: Series, until: int) -> list[Check]:
    """Fit the rows up to `until` GPUs, predict the others.

    Few rows cannot tell latency, which grows with every GPU, from bytes, which hardly grow. So there are three fits:
    both as unknowns, bytes alone (the step can hardly be shorter) and latency alone (hardly longer).
    """
    import numpy as np

    gpus = np.array(figures.gpus)
    times = np.array(figures.seconds) / figures.seconds[0]
    terms = np.stack([np.ones(len(gpus)), [ring_messages(n) for n in gpus], [ring_bytes(n) for n in gpus]], axis=1)
    seen = gpus <= until
    if seen.sum() < 3 or seen.all():
        raise ValueError(
            f"up to {until} GPUs there are {seen.sum()} of {len(gpus)} rows; three are needed for the fit, and one to "
            "be predicted"
        )
    guesses = []
    for columns in ([0, 1, 2], [0, 2], [0, 1]):
        part = terms[:, columns]
        guesses.append(part @ least_squares(part[seen], times[seen]))
    return [
        Check(int(n), float(time), float(of[0]), float(min(of)), float(max(of)), bool(n <= until), note)
        for n, time, *of, note in zip(gpus, times, *guesses, figures.notes, strict=True)
    ]


def link_from_bus_bandwidth(rows: Sequence[Row], ranks: int) -> tuple[Link, list[tuple[float, float, float]]]:
    """A link from the smallest and the largest of published all_reduces; all of them as (bytes, measured, predicted).

    Both in seconds. Bus bandwidth is bytes / seconds · 2(N-1)/N, as nccl-tests defines it (doc/PERFORMANCE.md in
    github.com/NVIDIA/nccl-tests).
    """
    import numpy as np

    sizes = np.array([_bytes(row["setting"]) for row in rows])
    seconds = ring_bytes(ranks) * sizes / np.array([float(row["value"]) * 1e9 for row in rows])
    terms = np.stack([np.full(len(sizes), ring_messages(ranks)), ring_bytes(ranks) * sizes], axis=1)
    ends = [int(sizes.argmin()), int(sizes.argmax())]
    found = least_squares(terms[ends], seconds[ends])
    link = Link(max(float(found[0]), SMALLEST), 1 / max(float(found[1]), SMALLEST))
    return link, _triples(sizes, seconds, terms @ found)


def _triples(*columns: Iterable[float]) -> list[tuple[float, float, float]]:
    return [(float(a), float(b), float(c)) for a, b, c in zip(*columns, strict=True)]


def _gpus(row: Row) -> int:
    found = re.match(r"(\d+) GPU", row["setting"])
    if found is None:
        raise ValueError(f"this row does not say how many GPUs: {row['setting']!r}")
    return int(found[1])


def _seconds(row: Row, gpus: int) -> float:
    value = float(row["value"])
    if row["unit"] == "images/s":  # of all GPUs
        return gpus / value
    if row["unit"] == "tokens/s/GPU":
        return 1 / value
    if row["unit"] == "min":  # of a fixed number of samples, in steps that grow with the GPUs
        return gpus * value
    raise ValueError(f"a step's time cannot be told from {row['unit']!r}")


def _bytes(setting: str) -> float:
    number, unit = setting.split()
    return float(number) * UNITS[unit]
