"""What a failed run says, in at most 25 lines: the cause first, then its evidence, then who only fell with it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from .faults.explain import explain, hint
from .logs import shown
from .outcome import read_json
from .result import Failure, Run
from .view import shown_path

MAX_LINES = 25
LAST_LINES = 5
SHORT_OUTPUT = 15  # lines
TAIL_BYTES = 1 << 16
FULL = 1 << 20  # bytes free; below, nothing that a rank writes can be trusted to be there
MAX_FRAMES = 5


def rank_failure(run: Run, cell: bool) -> str:
    """The message of RankFailed."""
    failure = run.failure
    assert failure is not None
    head = [f"rank {failure.rank} of {len(run.ranks)} failed: {_what(failure, 600)}", *_place(run, failure, cell)]
    head += hint(run)
    foot = _other_ranks(failure)
    foot.append(f"All that this rank printed: {shown_path(run.log_dir)}/rank{failure.rank}/")
    room = MAX_LINES - 2 - len("\n".join([*head, *foot]).splitlines())
    last = _last_lines(run.ranks[failure.rank].folders[-1] / "stdout.log")
    said = ["It printed last:", *last][: max(0, room)] if last else []
    return "\n".join([*head, *said, *foot])


def _last_lines(path: Path) -> list[str]:
    """The last lines of a long output; a short one stands in view just above."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return [f"  {_short(shown(line), 200)}" for line in lines[-LAST_LINES:]] if len(lines) > SHORT_OUTPUT else []


def _what(failure: Failure, limit: int) -> str:
    message = _short(failure.message, limit)
    without_exception = not failure.time  # then the message says all, the signal's name too
    return message if without_exception else f"{failure.exception_type}: {message}"


def _place(run: Run, failure: Failure, cell: bool) -> list[str]:
    """The script's lines on the way to the error, innermost first, and the library's function that raised it."""

    def line(number: int | None) -> str:
        return f"cell line {(number or 0) + 1}" if cell else f"line {number} of {run.script}"

    if not failure.frames:
        return [f"  at {line(failure.line)}"] if failure.line else []
    rows = []
    last = failure.frames[-1]
    if not last.in_script:
        rows.append(f"  raised in {Path(last.file).name}, line {last.line}, in {last.function}")
    for frame in reversed([frame for frame in failure.frames if frame.in_script][-MAX_FRAMES:]):
        function = "" if frame.function == "<module>" else f", in {frame.function}"
        rows.append(f"  {'called from ' * bool(rows)}{line(frame.line)}{function}:  {(frame.text or '').strip()}")
    return rows


def _other_ranks(failure: Failure) -> list[str]:
    rows = []
    same = [other.rank for other in failure.others if other.message == failure.message]
    if same:
        rows.append(f"{_ranks(same)} failed in the same way.")
    rows += [f"Rank {f.rank} failed too: {_what(f, 100)}" for f in failure.others if f.rank not in same][:2]
    if failure.victims:
        rows.append(
            f"{_ranks(failure.victims)} ended when rank {failure.rank} failed; an error printed there is no cause."
        )
    if failure.finished:
        rows.append(f"{_ranks(failure.finished)} had reached the end of the script.")
    return rows


def _ranks(numbers: list[int]) -> str:
    return f"Rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def agent_failure(log_dir: Path, exit_code: int) -> str:
    """Why no rank ran, from what torchrun said."""
    if not log_dir.exists():
        return f"The folder of the run, {shown_path(log_dir)}, was removed while it ran."
    if shutil.disk_usage(log_dir).free < FULL:
        return (
            f"The disk that holds {shown_path(log_dir)} is full, so the ranks could write nothing. Free some space "
            "(python -m ddp_helpers clean removes the logs of earlier runs) and run the cell again."
        )
    errors = [
        error for node in sorted(log_dir.glob("node*")) if (error := read_json(node / "failures.json").get("error"))
    ]
    if errors:
        text = _short(errors[0], 1200)
        fault = explain(text + "\n").fault
        known = f"\n{fault.id} (lesson {fault.lesson}): {fault.means}\nCure: {fault.cure}" if fault else ""
        return f"torchrun could not start the ranks.\n{text}{known}"
    if exit_code < 0:
        return f"torchrun itself was ended by signal {-exit_code} ({signal.Signals(-exit_code).name}); its ranks too."
    log = log_dir / "node0" / "agent.log"
    tail = "\n".join(log.read_text("utf-8", "replace").splitlines()[-10:]) if log.exists() else ""
    return f"torchrun ended with exit code {exit_code} before any rank failed.\n{tail}"


def _short(text: str, limit: int) -> str:
    lines = text.strip().splitlines()
    text = "\n".join([*lines[:6], "…"] if len(lines) > 6 else lines)
    return text if len(text) <= limit else text[:limit] + " …"
