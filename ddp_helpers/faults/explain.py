"""explain(): from a failed run, or from a pasted log, to its cause."""

from __future__ import annotations

import os
from pathlib import Path

from ..result import Run
from .catalogue import by_id
from .explanation import Explanation


def explain(source: Run | str | os.PathLike[str]) -> Explanation:
    """Why did it fail? From a run, from the text of a log, or from its path.

    >>> explain("[rank1]: KeyError: 'label'").headline
    "rank 1 failed: KeyError: 'label'"

    A log may come from any torchrun or srun job: several ranks mixed, NCCL's noise, colours, progress bars, cut off at
    either end. A folder is that of `torchrun --log-dir`. The answer names the cause first, or says it is not there.
    """
    from . import diagnose  # here, because its patterns take 25 ms to compile, and most notebooks never fail

    run = getattr(source, "run", source)  # RankFailed carries its run
    if isinstance(run, Run):
        return diagnose.run(run)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"explain() takes a Run, the text of a log, or its path; got {type(source).__name__}")
    path = _path(source)
    if path is None:
        return diagnose.log(os.fspath(source).encode("utf-8", "replace"))
    return diagnose.folder(path) if path.is_dir() else diagnose.log(path.read_bytes())


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


def hint(run: Run) -> list[str]:
    """What the catalogue knows of a failed run, in at most three lines for the cell's error block."""
    explanation = explain(run)
    fault = explanation.fault
    if fault is None or fault is by_id()["rank-raises"] or fault.kind == "warning":
        return []
    if explanation.known:
        return [f"{fault.id} (lesson {fault.lesson}): {fault.means}", f"Cure: {fault.cure}"]
    return [f"Perhaps {fault.id} (lesson {fault.lesson}): {fault.means}", f"To be sure: {fault.sure}"]
