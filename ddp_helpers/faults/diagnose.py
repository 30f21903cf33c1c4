"""Read what a run left, or a log, and judge it."""

from __future__ import annotations

from pathlib import Path

from ..result import Run
from .events import Exit, read_events
from .explanation import Explanation
from .judge import judge
from .lines import Line, read
from .stopped import explain_stopped


def log(text: bytes) -> Explanation:
    """A log from anywhere, in whatever encoding."""
    return _lines(read(text))


def folder(path: Path) -> Explanation:
    """A folder of torchrun --log-dir: …/attempt_N/LOCAL_RANK/stderr.log."""
    lines: list[Line] = []
    for file in sorted(path.rglob("std*.log")):
        lines += read(file.read_bytes(), int(file.parent.name) if file.parent.name.isdigit() else None)
    return _lines(lines)


def run(run: Run) -> Explanation:
    """A run of ours: the ranks' files, their exit codes, and who failed first."""
    if run.failure is not None and run.failure.exception_type == "RunTimeout":
        return explain_stopped(run.failure.message)
    lines: list[Line] = []
    for rank in run.ranks:
        for name in ("stdout.log", "stderr.log"):
            if (file := rank.folders[-1] / name).exists():
                lines += read(file.read_bytes(), rank.rank)
    record = read_events(lines)
    first = run.failure.rank if run.failure else None
    for rank in run.ranks:
        record.exits[rank.rank] = Exit(rank.rank, rank.exit_code or 0, root=rank.rank == first)
    return judge(lines, record, failed=bool(run.exit_code))


def _lines(lines: list[Line]) -> Explanation:
    return judge(lines, read_events(lines))
