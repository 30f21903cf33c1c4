"""What happened in a run: its ranks, and the cause among all that went wrong, from what worker.py and agent.py left."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

from .faults.catalogue import is_echo
from .result import Failure, Frame, Rank


def read_ranks(log_dir: Path, nproc: int, reported: bool, cut_off: Collection[int] = ()) -> list[Rank]:
    """The ranks of a run from what worker.py and agent.py left.

    `reported`: torchrun itself ended the run, but for the nodes that were `cut_off` because another one had failed.
    """
    by_rank: dict[int, list[Path]] = {}
    for folder in sorted(log_dir.glob("node*/run_*/attempt_*/*/"), key=lambda f: int(f.parent.name.split("_")[-1])):
        note = read_json(folder / "rank.json")
        by_rank.setdefault(note.get("rank", _node_of(folder, log_dir) * nproc + int(folder.name)), []).append(folder)
    failed = {int(r): f for node in sorted(log_dir.glob("node*")) for r, f in read_failures(node).items()}
    ranks = []
    for rank, folders in sorted(by_rank.items()):
        note = read_json(folders[-1] / "rank.json")
        ended = reported and _node_of(folders[-1], log_dir) not in cut_off
        code = failed[rank]["exit_code"] if rank in failed else (0 if ended else None)
        pid = note.get("pid", failed.get(rank, {}).get("pid"))
        ranks.append(Rank(rank, note.get("local_rank", int(folders[-1].name)), pid, code, folders))
    return ranks


def _node_of(folder: Path, log_dir: Path) -> int:
    return int(folder.relative_to(log_dir).parts[0].removeprefix("node"))


def read_failures(node: Path) -> dict[str, dict[str, int]]:
    return dict(read_json(node / "failures.json").get("failures", {}))


def read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def find_failure(ranks: list[Rank]) -> Failure | None:
    """The cause among all that went wrong.

    Earliest first, but an exception before its echo on other ranks (a rank that cleans up before it dies is late),
    and a rank that died without a word (killed, crashed) before ranks that only echo. A rank that torchrun ended with
    SIGTERM is a victim.
    """
    failures = [failure for rank in ranks if (failure := _failure_of(rank))]
    if not failures:
        return None
    cause = min(failures, key=lambda f: (_plausibility(f), f.time, f.rank))
    cause.others = [f for f in failures if f is not cause and _plausibility(f) == 0]
    independent = {cause.rank, *(f.rank for f in cause.others)}
    # A rank leaves imported.json at its script's end; torchrun may still end it while its interpreter shuts down.
    cause.finished = [r.rank for r in ranks if r.exit_code == 0 or (r.folders[-1] / "imported.json").exists()]
    cause.victims = [rank.rank for rank in ranks if rank.rank not in {*independent, *cause.finished}]
    return cause


def _plausibility(failure: Failure) -> int:
    if failure.exception_type == "SIGTERM":
        return 3
    if failure.time:
        return 2 if is_echo(failure.message) else 0
    return 1


def _failure_of(rank: Rank) -> Failure | None:
    note = read_json(rank.folders[-1] / "error.json").get("ddp_helpers")
    if note:
        frames = [
            Frame(file, line, function, text, file == note["script"]) for file, line, function, text in note["frames"]
        ]
        line = next((frame.line for frame in reversed(frames) if frame.in_script), None)
        traceback, when = note["traceback"], note["time"]
        return Failure(rank.rank, note["type"], note["text"], line, traceback, frames=frames, time=when)
    if not rank.exit_code:
        return None
    if rank.exit_code > 0:
        message = f"the process ended with exit code {rank.exit_code} and no exception (os._exit?)."
        return Failure(rank.rank, "exit", message, None, "")
    name = signal.Signals(-rank.exit_code).name
    message = f"the process was ended by signal {-rank.exit_code} ({name})."
    if name == "SIGKILL":
        message += " When nobody did that by hand, it is most often the system, out of memory."
    crash = _python_stack(rank.stderr)
    outermost = re.findall(r'File "([^"]*)", line (\d+) in <module>', crash)
    lines = [int(line) for file, line in outermost if not file.endswith("worker.py")]
    return Failure(rank.rank, name, message, lines[0] if lines else None, crash)


def _python_stack(stderr: str) -> str:
    """What faulthandler printed when the process crashed."""
    start = stderr.rfind("Fatal Python error")
    return stderr[start:] if start >= 0 else ""
