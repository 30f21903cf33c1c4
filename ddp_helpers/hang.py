"""Where is everybody? Asks the ranks of a run that seems to hang, and says it in one sentence."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from .outcome import read_json
from .position import Position, ranks, read_position
from .relation import in_step, relation
from .stop import CLOCK_SLACK

NOTICE_AFTER = 15.0  # no line printed for so long: look whether anything is being computed
BUSY_SHARE = 0.02  # of one core; below it, all ranks together count as not computing
RANK_BUSY_SHARE = 0.1  # of one core; above it, one rank is said to compute
SAMPLE_SECONDS = 0.3
ANSWER_SECONDS = 2.0  # reading 2,000 recorded collectives takes 0.2 s of a rank's core, and ranks may share one
STACK_SECONDS = 0.5
SPIN_LOOKS = 3  # with ranks that spin, each look asks them all: so many in one spell of `after` seconds


class Watch:
    """Looks, while a run goes on, whether it still moves; has something to say when no rank prints or computes.

    `after`: seconds until then; 0 never. `spins`: ranks use the processor while they wait (NCCL), see `_work`.
    """

    def __init__(self, log_dir: Path, cell: bool, after: float = NOTICE_AFTER, spins: bool = False) -> None:
        self._log_dir, self._cell, self._after, self._spins = log_dir, cell, after, spins
        self._every = min(1.0, after / 4) if not spins else after / SPIN_LOOKS
        self._printed = self._looked = time.monotonic()
        self._seen: tuple[float, float, object] | None = None  # when, the CPU seconds used until then, and the calls
        self._noticed = False

    def look(self, printed: bool) -> str | None:
        """A notice to show, "" to take it away, None to leave the display as it is."""
        now = time.monotonic()
        if printed or self._after <= 0:
            self._printed, self._seen = now, None
            return self._take_away()
        if now - self._looked < self._every or now - self._printed < self._after / 3:
            return None
        self._looked = now
        if not _latest_attempts(self._log_dir):
            self._printed = now  # no rank has started yet: the quiet begins with the first
            return None
        cpu, calls = self._work()
        if self._seen is None or self._moved(now, cpu, calls):
            self._seen = (now, cpu, calls)  # wait for another quiet spell
            return self._take_away()
        if self._noticed or now - self._printed < self._after or now - self._seen[0] < self._after / 2:
            return None
        self._noticed = True
        quiet = f"{now - self._printed:.0f} s"
        head = (
            f"Nothing printed for {quiet}; the ranks may be stuck."
            if self._spins
            else f"Nothing has moved for {quiet}."
        )
        return f"{head}\n{message(where(self._log_dir), self._cell)}"

    def _take_away(self) -> str | None:
        noticed, self._noticed = self._noticed, False
        return "" if noticed else None

    def _moved(self, now: float, cpu: float, calls: object) -> bool:
        assert self._seen
        before, used, seen = self._seen
        # The sum falls when a rank has ended.
        return calls != seen or abs(cpu - used) > BUSY_SHARE * (now - before) + 0.05

    def _work(self) -> tuple[float, object]:
        """The CPU seconds used so far, and for ranks that spin, what they have called.

        NCCL waits by spinning, so the CPU time of a rank with a collective under way says nothing: only the time of the
        other ranks counts then, and whether all are where they were at the last look. While all ranks are in the same
        calls, the GPUs may be computing what comes before them: that counts as movement.
        """
        if not self._spins:
            return cpu_seconds(self._log_dir), None
        positions = where(self._log_dir, sample=0)
        waiting = {p.rank for p in positions if p.pending() or p.sent}
        if in_step(positions):
            return 0.0, time.monotonic()
        calls = [(p.rank, p.line, p.pending(), p.state) for p in positions]
        return cpu_seconds(self._log_dir, besides=waiting), calls


def where(log_dir: Path, sample: float = SAMPLE_SECONDS) -> list[Position]:
    """Ask all ranks; those that cannot run Python get a signal that makes faulthandler write their stack.

    `sample`: seconds for which it is first looked whether they compute.
    """
    folders = _latest_attempts(log_dir)
    before = [_cpu_seconds(folder) for folder in folders]
    time.sleep(sample)
    busy = [
        sample and _cpu_seconds(f) - used > RANK_BUSY_SHARE * sample for f, used in zip(folders, before, strict=True)
    ]
    asked = time.time()
    for folder in folders:
        _ask(folder)
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline and not all(_answer(f, asked) or _state(f) != "silent" for f in folders):
        time.sleep(0.02)
    positions = [_position(folder, asked, bool(b)) for folder, b in zip(folders, busy, strict=True)]
    return sorted(positions, key=lambda p: p.rank)


def message(positions: list[Position], cell: bool) -> str:
    """Who waits for whom in a sentence, and below it what each rank does: "ranks 0, 2: waiting in …"."""

    def place(line: int | None) -> str:
        return "" if line is None else f" (cell line {line + 1})" if cell else f" (line {line})"

    groups: dict[str, list[int]] = {}
    for position in positions:
        groups.setdefault(position.doing(place), []).append(position.rank)
    lines = [f"  {ranks(numbers)}: {what}" for what, numbers in groups.items()]
    text = "\n".join(filter(None, [relation(positions, place), *lines]))
    if any("started itself" in what for what in groups):
        text += (
            "\nA script that starts its own processes finds torchrun's settings in their environment and waits for a "
            "store that nobody opens. Let torchrun start the processes, or begin the script with\n"
            "    import os; os.environ.pop('TORCHELASTIC_USE_AGENT_STORE', None)"
        )
    return text


def cpu_seconds(log_dir: Path, besides: set[int] | None = None) -> float:
    """The CPU time that all ranks (`besides` some) and their children have used so far."""
    folders = _latest_attempts(log_dir)
    return sum(_cpu_seconds(f) for f in folders if not besides or read_json(f / "rank.json")["rank"] not in besides)


def _cpu_seconds(folder: Path) -> float:
    total = 0.0
    try:
        rank = psutil.Process(read_json(folder / "rank.json")["pid"])
        for process in (rank, *rank.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    except psutil.Error:
        pass
    return total


def _latest_attempts(log_dir: Path) -> list[Path]:
    newest: dict[tuple[str, str], Path] = {}
    for path in sorted(log_dir.glob("node*/run_*/attempt_*/*/rank.json"), key=lambda p: p.stat().st_mtime):
        newest[path.relative_to(log_dir).parts[0], path.parent.name] = path.parent
    return list(newest.values())


def _ask(folder: Path) -> None:
    try:
        pipe = os.open(folder / "where", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # the rank has ended, or has no named pipe
    os.write(pipe, b"?")
    os.close(pipe)


def _answer(folder: Path, asked: float) -> dict[str, Any]:
    answer = read_json(folder / "here.json")
    return answer if answer.get("time", 0) >= asked else {}


def _position(folder: Path, asked: float, busy: bool) -> Position:
    note, answer = read_json(folder / "rank.json"), _answer(folder, asked)
    if answer:
        return read_position(note["rank"], answer, busy)
    state = _state(folder)
    if state != "silent":
        return Position(note["rank"], state=state)
    stack = _stack_by_signal(folder, note["pid"])
    return Position(note["rank"], stack[0][0] if stack else "", stack, state=state, busy=busy)


def _stack_by_signal(folder: Path, pid: int) -> list[tuple[str, int, str]]:
    """The main thread's frames from the script's on, by faulthandler, which needs no Python to run."""
    path = folder / "stack.txt"
    if not hasattr(signal, "SIGUSR1") or not path.exists():
        return []
    written = path.stat().st_size
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + STACK_SECONDS
    while time.monotonic() < deadline and path.stat().st_size == written:
        time.sleep(0.02)
    _, _, text = path.read_bytes()[written:].decode("utf-8", "replace").partition("Current thread")
    frames = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', text.partition("\n\n")[0], re.M)[::-1]
    ours = [i for i, (_, _, name) in enumerate(frames) if name in ("_run_script", "run_module", "_run_code")]
    return [(file, int(line), name) for file, line, name in frames[max(ours, default=len(frames)) + 1 :]]


def _state(folder: Path) -> str:
    """What a rank that does not answer is: "ended", "stopped", or else "silent"."""
    note = read_json(folder / "rank.json")
    try:
        process = psutil.Process(note["pid"])
        status = process.status()
        if process.create_time() > note["time"] + CLOCK_SLACK or status == psutil.STATUS_ZOMBIE:
            return "ended"
    except psutil.Error:
        return "ended"
    return "stopped" if status == psutil.STATUS_STOPPED else "silent"
