"""The folders of runs: ``runs/0007-hello`` beside the notebook. The newest fifty stay."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import psutil

from .result import Rank

KEEP = 50
NAME = re.compile(r"(\d{4,})-")
IN_PROGRESS = "in-progress"  # a file that holds the kernel's pid while a run goes on


def new_folder(script: str) -> Path:
    """Make the folder of a new run, numbered on from the newest. Raises OSError where nothing can be written."""
    runs = Path.cwd() / "runs"
    runs.mkdir(exist_ok=True)
    number = 1 + max((_number(f) for f in _folders(runs)), default=0)
    while True:
        folder = runs / f"{number:04d}-{Path(script).stem}"
        try:
            folder.mkdir()
        except FileExistsError:  # another notebook in this folder was faster
            number += 1
        else:
            (folder / IN_PROGRESS).write_text(str(os.getpid()), encoding="utf-8")
            return folder


def link_ranks(folder: Path, ranks: Iterable[Rank]) -> None:
    """Make ``runs/0007-hello/rank1`` lead to where torchrun put that rank's logs, below names of its own making."""
    for rank in ranks:
        with contextlib.suppress(OSError):  # a file system or a Windows without symbolic links
            (folder / f"rank{rank.rank}").symlink_to(rank.folders[-1].relative_to(folder), target_is_directory=True)


def finished(folder: Path) -> None:
    """Mark a run as finished, and remove its named pipes: a ``grep -r`` would wait on them for ever."""
    for pipe in folder.glob("node*/run_*/attempt_*/*/where"):
        pipe.unlink()
    (folder / IN_PROGRESS).unlink(missing_ok=True)


def prune(runs: Path, keep: int = KEEP) -> int:
    """Remove all finished runs but the newest `keep`; how many were removed."""
    old = [f for f in sorted(_folders(runs), key=_number, reverse=True)[keep:] if not _in_progress(f)]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return len(old)


def _in_progress(folder: Path) -> bool:
    try:
        return psutil.pid_exists(int((folder / IN_PROGRESS).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return False


def _folders(runs: Path) -> list[Path]:
    return [f for f in runs.iterdir() if NAME.match(f.name) and f.is_dir()] if runs.is_dir() else []


def _number(folder: Path) -> int:
    match = NAME.match(folder.name)
    return int(match.group(1)) if match else 0
