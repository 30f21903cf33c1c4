"""Where is everybody? Asks the ranks of a run that seems to hang, and says it in one sentence."""

from __future__ import annotations

import linecache
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from .result import read_json
from .stop import CLOCK_SLACK

QUIET_SECONDS = 15.0  # no line printed for so long: look whether anything is being computed
BUSY_SHARE = 0.02  # of one core; below it, all ranks together count as not computing
ANSWER_SECONDS = 1.0


@dataclass
class Position:
    """Where one rank is. `stack`: its main thread, outermost first; `pending`: collectives begun and not ended."""

    rank: int
    script: str
    stack: list[tuple[str, int, str]] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)
    answered: bool = True
    ended: bool = False

    @property
    def line(self) -> int | None:
        """The script's line that the main thread is in."""
        lines = [line for file, line, _ in self.stack if file == self.script]
        return lines[-1] if lines else None

    def what(self) -> str:
        if self.ended:
            return "has ended"
        if not self.answered:
            return "no answer (busy in code that never lets Python run)"
        if self.pending:
            entry = self.pending[0]
            name = str(entry["profiling_name"]).partition(":")[2] or entry["profiling_name"]
            sizes = " ".join(str(size) for size in entry["input_sizes"] or [])
            return f"waiting in {name} #{entry['collective_seq_id']}{' ' + sizes if sizes else ''}"
        if any("importlib" in file for file, _, _ in self.stack):
            return "still importing"
        if not self.stack:
            return "still starting"
        file, line, function = self.stack[-1]
        if any(f"{os.sep}multiprocessing{os.sep}" in path for path, _, _ in self.stack):
            return "waiting for a process that it started itself"
        if file == self.script:
            return f"not there: it is at `{linecache.getline(file, line).strip()}`"
        return f"not there: it is in {function} ({Path(file).name})"


class Watch:
    """Looks, while a run goes on, whether it still moves; has something to say when no rank prints or computes."""

    def __init__(self, log_dir: Path, cell: bool) -> None:
        self._log_dir, self._cell = log_dir, cell
        self._printed = self._looked = time.monotonic()
        self._cpu: tuple[float, float] | None = None  # when, and the CPU seconds used until then
        self._noticed = False

    def look(self, printed: bool) -> str | None:
        """A notice to show, "" to take it away, None to leave the display as it is."""
        now = time.monotonic()
        if printed:
            self._printed, self._cpu = now, None
            noticed, self._noticed = self._noticed, False
            return "" if noticed else None
        if now - self._looked < 1 or now - self._printed < QUIET_SECONDS / 3:
            return None
        self._looked = now
        if not _latest_attempts(self._log_dir):
            self._printed = now  # no rank has started yet: the quiet begins with the first
            return None
        cpu = cpu_seconds(self._log_dir)
        if self._cpu is None or abs(cpu - self._cpu[1]) > BUSY_SHARE * (now - self._cpu[0]) + 0.05:
            self._cpu = (now, cpu)  # computing, or a rank has ended (then the sum falls): wait for another quiet spell
            return None
        if self._noticed or now - self._printed < QUIET_SECONDS or now - self._cpu[0] < QUIET_SECONDS / 2:
            return None
        self._noticed = True
        return f"Nothing has moved for {now - self._printed:.0f} s.\n{sentence(where(self._log_dir), self._cell)}"


def where(log_dir: Path) -> list[Position]:
    """Ask all ranks; those that cannot run Python get a signal that makes faulthandler write their stack."""
    asked = time.time()
    folders = _latest_attempts(log_dir)
    for folder in folders:
        _ask(folder)
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline and not all(_answer(folder, asked) for folder in folders):
        time.sleep(0.02)
    return sorted((_position(folder, asked) for folder in folders), key=lambda p: p.rank)


def sentence(positions: list[Position], cell: bool) -> str:
    """Who waits for whom, and where: "ranks 0, 2: waiting in all_reduce #2 [2, 2] (cell line 15)"."""
    groups: dict[tuple[str, int | None], list[int]] = {}
    for position in positions:
        groups.setdefault((position.what(), position.line), []).append(position.rank)
    parts = []
    for (what, line), ranks in groups.items():
        who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
        at = "" if line is None else f" (cell line {line + 1})" if cell else f" (line {line})"
        parts.append(f"{who}: {what}{at}")
    text = "\n".join(parts)
    if any("started itself" in what for what, _ in groups):
        text += (
            "\nA script that starts its own processes finds torchrun's settings in their environment and waits for a "
            "store that nobody opens. Let torchrun start the processes, or begin the script with\n"
            "    import os; os.environ.pop('TORCHELASTIC_USE_AGENT_STORE', None)"
        )
    return text


def cpu_seconds(log_dir: Path) -> float:
    """The CPU time that all ranks and their children have used so far."""
    total = 0.0
    for folder in _latest_attempts(log_dir):
        try:
            rank = psutil.Process(read_json(folder / "rank.json")["pid"])
            for process in (rank, *rank.children(recursive=True)):
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue
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


def _position(folder: Path, asked: float) -> Position:
    note, answer = read_json(folder / "rank.json"), _answer(folder, asked)
    if answer:
        stack = [(file, line, name) for file, line, name in answer["stack"]]
        return Position(note["rank"], answer["script"], stack, answer["pending"])
    alive = _is_alive(note)
    if alive and hasattr(signal, "SIGUSR1"):
        os.kill(note["pid"], signal.SIGUSR1)  # faulthandler writes the rank's stack.txt
    return Position(note["rank"], "", answered=False, ended=not alive)


def _is_alive(note: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(note["pid"])
        mine = process.create_time() <= note["time"] + CLOCK_SLACK
        return mine and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
