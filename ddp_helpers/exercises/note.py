"""What a harness saw of the learner's script, left beside the logs of its rank for the check to read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..result import Run


def leave(seen: dict[str, Any], name: str = "seen.json", default: Callable[[Any], Any] | None = None) -> None:
    """In a rank: `leave({"weight": 1.0})`. `default` is json's: it makes something of what JSON does not know."""
    write(place(name), seen, default)


def place(name: str = "seen.json") -> Path:
    """Where this rank leaves its note; asked for before a harness takes away what torchrun has set."""
    return Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parent / name


def write(path: Path, seen: dict[str, Any], default: Callable[[Any], Any] | None = None) -> None:
    """The whole note or none: torchrun may end this rank while it writes, because another one has failed."""
    half = path.with_suffix(".half")
    half.write_text(json.dumps(seen, default=default), encoding="utf-8")
    os.replace(half, path)


def left_by(run: Run, name: str = "seen.json") -> dict[int, dict[str, Any]]:
    """In the check: the notes of that name, rank by rank; a rank that was ended before it wrote has left none."""
    paths = {rank.rank: rank.folders[-1] / name for rank in run.ranks}
    return {rank: json.loads(path.read_text(encoding="utf-8")) for rank, path in paths.items() if path.exists()}
