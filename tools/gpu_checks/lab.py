"""What a check is given: where it runs, and where it writes what it found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .spread import Spread

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).with_name("scripts")
MEASURED, HOLDS, FAILS = "measured", "holds", "does not hold"
REHEARSAL = "rehearsal"  # on a CPU, in tiny sizes: it proves that the check runs, and nothing else
SKIPPED, ERROR, LATE = "skipped", "error", "time limit"
BAD = (FAILS, ERROR, LATE)


@dataclass(frozen=True)
class Row:
    """One line of the CSV, without what all lines share. `low` and `high`: a tenth of the repeats lies beyond each."""

    check: str
    workload: str
    setting: str
    value: str
    unit: str
    status: str
    low: str = ""
    high: str = ""
    note: str = ""


@dataclass(frozen=True)
class Lab:
    """Where one check runs. Rows are written as they are found: what ends the check does not take them along."""

    check: str
    on_gpu: bool
    gpus: int  # in a rehearsal 2: as many ranks as a machine with several GPUs has at least
    scratch: Path
    lines: Path
    keep: Path  # for files that a person may want to look at

    @property
    def device(self) -> str:
        return "cuda" if self.on_gpu else "cpu"

    @property
    def backend(self) -> str:
        return "nccl" if self.on_gpu else "gloo"

    def places(self, number: int) -> str:
        return f"{number} {'GPU' if self.on_gpu else 'CPU rank'}{'s' * (number > 1)}"

    def measured(self, workload: str, setting: str, value: Any, unit: str, note: str = "") -> None:
        """A figure, or a fact. A Spread brings its low and high along."""
        status, low, high = MEASURED if self.on_gpu else REHEARSAL, "", ""
        if isinstance(value, Spread):
            note = "; ".join(filter(None, [f"median of {value.repeats}", note]))
            value, low, high = value.median, figure(value.low), figure(value.high)
        self._write(Row(self.check, workload, setting, figure(value), unit, status, low, high, note))

    def claim(self, lesson: str, text: str, holds: bool, note: str = "") -> None:
        """Something that the course says of GPUs. In a rehearsal the row says what came, and does not count."""
        status = (HOLDS if holds else FAILS) if self.on_gpu else REHEARSAL
        self._write(Row(self.check, f"lesson {lesson}", text, str(int(holds)), "1 = holds", status, note=note))

    def skipped(self, what: str, why: str) -> None:
        self._write(Row(self.check, "", what, "", "", SKIPPED, note=why))

    def _write(self, row: Row) -> None:
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")


def figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def read_rows(lines: Path) -> list[Row]:
    """The whole lines of a file that a check may have been killed while writing."""
    text = lines.read_text(encoding="utf-8") if lines.exists() else ""
    return [Row(**json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]
