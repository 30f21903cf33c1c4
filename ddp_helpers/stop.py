"""The one way in which runs are stopped: SIGINT, three seconds, SIGTERM, three seconds, SIGKILL; then look.

torch gives every rank a session of its own, so ending the agent's process group misses them: the last step goes to each
rank's session. Nothing is ended by name or by a guess; a process id counts only with the start time noted beside it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from .environment import RUN_MARK
from .interrupts import Interrupts
from .outcome import read_json

GRACE = 3.0  # s between the steps
CLOCK_SLACK = 2.0  # s; between a rank's own note of its start and the kernel's


class Agent(Protocol):
    """What both engines' agents can do."""

    pid: int

    def poll(self) -> int | None: ...


def stop(
    agents: Sequence[Agent],
    log_dir: Path,
    cut_lifeline: Callable[[], None],
    interrupts: Interrupts,
    steps: Sequence[int] = (signal.SIGINT, signal.SIGTERM),
) -> list[int]:
    """End a run's agents, ranks and whatever they started; the pids that survived (none, or a kernel bug).

    One more interrupt while this waits jumps to SIGKILL. `steps`: the signals before it.
    """
    patience = interrupts.count
    for number in steps:
        running = [agent for agent in agents if agent.poll() is None]
        for agent in running:
            _signal(agent.pid, number)
        if _wait_for(running, GRACE, lambda: interrupts.count > patience) or interrupts.count > patience:
            break
    cut_lifeline()  # every rank that still can ends itself and its group now
    for agent in agents:
        if agent.poll() is None:
            _signal(agent.pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    _wait_for(agents, GRACE)
    return end_leftovers(log_dir, everywhere=True)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait_for(agents: Sequence[Agent], seconds: float, hurry: Callable[[], bool] = lambda: False) -> bool:
    deadline = time.monotonic() + seconds
    while any(agent.poll() is None for agent in agents):
        if time.monotonic() > deadline or hurry():
            return False
        time.sleep(0.01)
    return True


def end_leftovers(log_dir: Path, everywhere: bool) -> list[int]:
    """Kill what is left of a run; the pids that are still alive after 2 s.

    In the sessions of its ranks, that is; `everywhere`: also what left them but carries the run's mark in its
    environment. (After a run that ended by itself its agent has seen to those.)
    """
    deadline = time.monotonic() + 2.0
    while left := _leftovers(log_dir, everywhere):
        if time.monotonic() > deadline:
            return [process.pid for process in left]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=0.1)
    return []


def _leftovers(log_dir: Path, everywhere: bool) -> list[psutil.Process]:
    notes = [read_json(path) for path in log_dir.glob("node*/run_*/attempt_*/*/rank.json")]
    leaders = {int(note["pid"]): float(note["time"]) for note in notes}
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            session = os.getsid(pid) if hasattr(os, "getsid") else pid
            ours = session in leaders and not _is_a_stranger(session, leaders[session])
            if ours or (everywhere and _is_marked(pid, log_dir)):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE and pid != os.getpid():
                    found.append(process)
    return found


def _is_marked(pid: int, log_dir: Path) -> bool:
    return psutil.Process(pid).environ().get(RUN_MARK) == str(log_dir)


def _is_a_stranger(leader: int, noted: float) -> bool:
    """Whether the rank's pid now belongs to a process that started after the rank had noted itself."""
    return psutil.pid_exists(leader) and psutil.Process(leader).create_time() > noted + CLOCK_SLACK
