"""explain(): from a failed run, or from a pasted log, to its cause."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .catalogue import by_id
from .events import Exit, Record, read_events
from .explanation import Explanation
from .judge import Judge
from .lines import Line, read
from .stopped import explain_stopped

if TYPE_CHECKING:
    from ..result import Run


def explain(source: Run | str | os.PathLike[str]) -> Explanation:
    """Why did it fail? From a run, from the text of a log, or from its path.

    >>> explain("[rank1]: KeyError: 'label'").headline
    "rank 1 failed: KeyError: 'label'"

    A log may come from any torchrun or srun job: several ranks mixed, NCCL's noise, colours, progress bars, cut off at
    either end. A folder is that of `torchrun --log-dir`. The answer names the cause first, or says it is not there.
    """
    from ..result import Run

    run = getattr(source, "run", source)  # RankFailed carries its run
    if isinstance(run, Run):
        return _explain_run(run)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"explain() takes a Run, the text of a log, or its path; got {type(source).__name__}")
    path = _path(source)
    if path is None:
        return explain_bytes(os.fspath(source).encode("utf-8", "replace"))
    if path.is_dir():
        return _explain_folder(path)
    return explain_bytes(path.read_bytes())


def explain_bytes(log: bytes) -> Explanation:
    """The same from the log itself, in whatever encoding."""
    return _explain_lines(read(log))


def _path(source: str | os.PathLike[str]) -> Path | None:
    """The path that is meant; None when the source is the log's text itself."""
    if isinstance(source, os.PathLike):
        return Path(source)
    if "\n" in source or len(source) > 1_000:
        return None
    path = Path(source)
    try:
        found = path.exists()
    except (OSError, ValueError):  # a name that no file system takes
        return None
    if not found and path.suffix in (".log", ".txt", ".out", ".err"):
        raise FileNotFoundError(f"there is no file {source!r}")
    return path if found else None


def _explain_folder(folder: Path) -> Explanation:
    """A folder of torchrun --log-dir: …/attempt_N/LOCAL_RANK/stderr.log."""
    lines: list[Line] = []
    for path in sorted(folder.rglob("std*.log")):
        lines += read(path.read_bytes(), int(path.parent.name) if path.parent.name.isdigit() else None)
    return _explain_lines(lines)


def _explain_lines(lines: list[Line]) -> Explanation:
    return Judge(lines, read_events(lines)).verdict()


def _explain_run(run: Run) -> Explanation:
    if run.failure is not None and run.failure.exception_type == "RunTimeout":
        return explain_stopped(run.failure.message)
    lines: list[Line] = []
    for rank in run.ranks:
        folder = rank.folders[-1]
        for name in ("stdout.log", "stderr.log"):
            if (folder / name).exists():
                lines += read((folder / name).read_bytes(), rank.rank)
    record: Record = read_events(lines)
    first = run.failure.rank if run.failure else None
    for rank in run.ranks:
        record.exits[rank.rank] = Exit(rank.rank, rank.exit_code or 0, root=rank.rank == first)
    return Judge(lines, record, failed=bool(run.exit_code)).verdict()


def hint(run: Run) -> list[str]:
    """What the catalogue knows of a failed run, in at most three lines for the cell's error block."""
    explanation = _explain_run(run)
    fault = explanation.fault
    if fault is None or fault is by_id()["rank-raises"] or fault.kind == "warning":
        return []
    if explanation.known:
        return [f"{fault.id} (lesson {fault.lesson}): {fault.means}", f"Cure: {fault.cure}"]
    return [f"Perhaps {fault.id} (lesson {fault.lesson}): {fault.means}", f"To be sure: {fault.sure}"]
