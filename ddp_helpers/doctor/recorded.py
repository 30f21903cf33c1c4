"""Recorded machines: facts of machines you may not have, to practise reading reports."""

from __future__ import annotations

import json
from pathlib import Path

from .machine import Machine

FOLDER = Path(__file__).parent / "machines"


def recorded_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def recorded(name: str) -> Machine:
    """`recorded("8-gpu-server")`. Raises ValueError, naming the machines there are."""
    if name not in recorded_names():
        raise ValueError(f"no recorded machine {name!r}; there are: {', '.join(recorded_names())}")
    return Machine.from_dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
