"""Run a script with the plain torchrun, and bring its globals back: what a check needs, without the course's module.

The cells of the lessons come from their sources, so that what is checked is what learners run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from .lab import ROOT, SCRIPTS, Lab


@dataclass(frozen=True)
class Cell:
    """A `%%torchrun` cell of a lesson: its script's name and text, and what it brings back."""

    script: str
    text: str
    returns: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """A run that has ended. `code` is torchrun's; `output` is that of all ranks and of torchrun itself."""

    code: int
    output: str
    returned: list[dict[str, Any]]


def lesson_cell(script: str, root: Path = ROOT) -> Cell:
    """The cell that writes scripts/`script`, from the lesson whose number the name begins with."""
    for source in sorted((root / "notebooks" / "source").glob(f"{script[:2]}_*.md")):
        lines = source.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            words = line.split()
            if words[:1] == ["%%torchrun"] and words[-1] == f"scripts/{script}":
                text = "\n".join(lines[number + 1 : lines.index("```", number)]) + "\n"
                return Cell(script, text, tuple(b for a, b in pairwise(words) if a == "--return"))
    raise LookupError(f"no lesson has a cell `%%torchrun … scripts/{script}`")


def run_cell(lab: Lab, cell: Cell, nproc: int, limit: float = 45) -> Ran:
    """Run a lesson's cell in a folder that looks like `notebooks`; RuntimeError if it fails."""
    path = lab.scratch / "notebooks" / "scripts" / cell.script
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(cell.text, encoding="utf-8")
    if not (lab.scratch / "data").exists():
        (lab.scratch / "data").symlink_to(ROOT / "data")
    return torchrun(lab, path, nproc, returns=cell.returns, limit=limit)


def torchrun(
    lab: Lab,
    script: Path,
    nproc: int,
    args: Sequence[str] = (),
    returns: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    limit: float = 45,
    check: bool = True,
) -> Ran:
    """Run `script` as `nproc` ranks; with `check`, RuntimeError with the end of the output if it fails.

    Raises TimeoutError after `limit` seconds, when all ranks are gone.
    """
    folder = lab.scratch / f"{script.stem}_{nproc}"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(SCRIPTS / "agent.py"), "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(nproc), str(SCRIPTS / "bring_back.py"), str(folder), ",".join(returns)]
    command += [str(script), *args]
    where = script.parent.parent if script.parent.name == "scripts" and script.is_relative_to(lab.scratch) else folder
    log = folder / "output.log"
    with log.open("wb") as output:
        agent = subprocess.Popen(
            command, cwd=where, env=environment(env), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        code = _wait(agent, limit)
    text = log.read_text(encoding="utf-8", errors="replace")
    if code is None:
        raise TimeoutError(f"{script.name} had not ended after {limit:g} s: {_end(text)}")
    if code and check:
        raise RuntimeError(f"{script.name} failed with exit code {code}: {_end(text)}")
    files = [folder / f"rank{rank}.pt" for rank in range(nproc)]
    return Ran(code, text, [torch.load(f, map_location="cpu", weights_only=False) for f in files if f.exists()])


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, with the threads a rank should have, and gloo on the loopback."""
    defaults = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if sys.platform == "linux":
        defaults["GLOO_SOCKET_IFNAME"] = "lo"
    return {**defaults, **os.environ, "PYTHONPATH": str(ROOT / "tools"), **(more or {})}


def _wait(agent: subprocess.Popen[bytes], limit: float) -> int | None:
    """The exit code, None after `limit`. Ranks end with their agent: bring_back.py sees to it."""
    try:
        return agent.wait(limit)
    except subprocess.TimeoutExpired:
        agent.send_signal(signal.SIGTERM)
        try:
            agent.wait(5)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()
        return None


def _end(text: str) -> str:
    """The line of a traceback that says what it was, or the last lines; one line of a CSV holds it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if "Error: " in line and "ChildFailedError" not in line]
    return " | ".join(said[-2:] or lines[-3:])[-600:]
