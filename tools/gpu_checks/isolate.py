"""Run one check in a process of its own: a crash, a hang or a lost GPU must not take the other checks along."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .lab import ERROR, LATE, SKIPPED, Row, read_rows

LEAST = 5.0  # s; in less no check can begin


@dataclass(frozen=True)
class Ended:
    """How a check's process ended: its rows, and what it printed."""

    rows: list[Row]
    output: str


def run(
    check: str, command: Sequence[str], lines: Path, limit: float, env: Mapping[str, str], wanted: float | None = None
) -> Ended:
    """The rows that `command` wrote to `lines`, and one more if it failed or was stopped after `limit` seconds.

    With `wanted`, the check's own limit: `limit` is what was left of the time for all.
    """
    if limit < LEAST:
        return Ended([Row(check, "", "not run", "", "", SKIPPED, note="no time was left")], "")
    log = lines.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            in_time = _ends(process.pid, limit)
        finally:  # also what it has left running in its group; not reaped yet, its number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: of a group that has ended
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")
    rows = read_rows(lines)
    if not in_time:
        what = f"stopped after {limit:.0f} s" + (f" of its {wanted:.0f}" if wanted and limit < wanted else "")
        rows.append(Row(check, "", "time", f"{limit:.0f}", "s", LATE, note=f"{what}: {_last(text)}"))
    elif code:
        rows.append(Row(check, "", "exit code", str(code), "", ERROR, note=_last(text)))
    return Ended(rows, text)


def _ends(pid: int, limit: float) -> bool:
    """Whether a child ends within `limit` seconds; it is left unreaped."""
    until = time.monotonic() + limit
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-800:] if lines else "it printed nothing"
