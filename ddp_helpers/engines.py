"""The two ways to start torchrun's agent: cold, a new interpreter; warm, a fork of a process that knows torch."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Union

import psutil

from . import warm
from .command import Command
from .environment import import_time_settings, is_read_by_imports
from .interrupts import Interrupts
from .outcome import read_json
from .result import LaunchError

# `environ["NAME"] =`, `.setdefault("NAME", …)` and putenv; what only reads it does not match.
ENVIRON_IS_SET = re.compile(r"""(?:environ\[|environ\.setdefault\(|putenv\()\s*["'](\w+)["'](?:\]\s*=[^=]|\s*,)""")
AGENT = str(Path(__file__).with_name("agent.py"))
Agent = Union[warm.WarmAgent, "subprocess.Popen[bytes]"]


class Lifeline:
    """A pipe that nobody writes to. The ranks hold its reading end, and end when the last writing end is closed:
    by `cut`, or because this process is gone, however it went."""

    def __init__(self) -> None:
        self.reading_end, self._writing_end = os.pipe()
        self._is_cut = False

    def cut(self) -> None:
        if not self._is_cut:
            self._is_cut = True
            os.close(self._writing_end)

    def close(self) -> None:
        self.cut()
        os.close(self.reading_end)


def choose(wanted: str, command: Command, env: Mapping[str, str]) -> str:
    """ "warm" where it can be, unless "cold" is wanted.

    Raises:
        LaunchError: "warm" is wanted and cannot be.
    """
    if wanted not in ("auto", "warm", "cold"):
        raise LaunchError(f'engine={wanted!r}: choose "auto", "warm" or "cold".')
    if wanted == "cold":
        return "cold"
    obstacle = _obstacle_to_warm(command, env)
    if obstacle and wanted == "warm":
        raise LaunchError(f"The warm engine cannot run this: {obstacle}. The cold one can.")
    return "cold" if obstacle else "warm"


def _obstacle_to_warm(command: Command, env: Mapping[str, str]) -> str:
    if sys.platform != "linux":
        return "it needs Linux"
    if any(arg.startswith(("--numa-binding", "--numa_binding")) for arg in command.torchrun_args):
        return "--numa-binding changes how each rank's interpreter is started"
    if "PYTHON_EXEC" in env:
        return "PYTHON_EXEC names another interpreter"
    early = _set_before_import(command)
    if early:
        return f"the script sets {early}, which torch and others read only while they are imported"
    now, then = import_time_settings(env), warm.settings_of_the_parent()
    changed = sorted(k for k in now.keys() | then.keys() if now.get(k) != then.get(k)) if then is not None else []
    return f"{', '.join(changed)} changed, which torch and others read only while they are imported" if changed else ""


def _set_before_import(command: Command) -> str:
    """The variable that the script sets and that imports read, or ""."""
    if command.module:
        return ""
    with contextlib.suppress(OSError):  # a missing script is reported elsewhere
        text = Path(command.script).read_text(encoding="utf-8", errors="replace")
        return next(filter(is_read_by_imports, ENVIRON_IS_SET.findall(text)), "")
    return ""


def start(
    engine: str, argv: list[str], env: dict[str, str], log: Path, lifeline: Lifeline, interrupts: Interrupts
) -> Agent:
    """Start an agent; its output goes to `log`."""
    if engine == "cold":
        return _start_cold(argv, env, log, lifeline)
    for _ in range(2):
        try:
            return warm.parent(env).start_agent(warm.Request(argv, env, str(log)), lifeline.reading_end, interrupts)
        except OSError:
            warm.shut_down()  # it is ending right now: killed, or after ten idle minutes; the next one is a new one
    raise LaunchError("The warm engine does not start here. Use --cold (engine='cold'), and please report this.")


def _start_cold(argv: list[str], env: dict[str, str], log: Path, lifeline: Lifeline) -> subprocess.Popen[bytes]:
    try:
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-u", AGENT, *argv],
                env=env,
                stdin=lifeline.reading_end,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Jupyter interrupts the kernel's whole process group
            )
    except (OSError, UnicodeEncodeError) as error:  # arguments too long, or not in this locale's encoding
        raise LaunchError(f"torchrun cannot be started: {error}.") from error


def wait(agents: list[Agent], seconds: float) -> None:
    """Wait, but no longer than until a warm agent ends."""
    warm_ones = [agent for agent in agents if isinstance(agent, warm.WarmAgent) and agent.returncode is None]
    if warm_ones:
        select.select(warm_ones, [], [], seconds)
    else:
        time.sleep(seconds)


def wait_until_gone(agents: list[Agent], seconds: float) -> None:
    """Wait for agents whose warm parent was killed: they end by themselves once their lifeline is cut."""
    for agent in agents:
        if isinstance(agent, warm.WarmAgent) and agent.poll() == warm.PARENT_IS_GONE:
            deadline = time.monotonic() + seconds
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan = psutil.Process(agent.pid)
                while orphan.status() != psutil.STATUS_ZOMBIE:  # process 1 need not be one that reaps (containers)
                    if time.monotonic() > deadline:
                        orphan.kill()
                        break
                    time.sleep(0.01)


def release(agent: Agent, log_dir: Path) -> None:
    """Close what an ended agent held open, and let the warm parent import what its ranks had to import."""
    if isinstance(agent, warm.WarmAgent):
        agent.close()
        used = {name for path in log_dir.glob("node*/run_*/attempt_*/*/imported.json") for name in read_json(path)}
        warm.preload(used)
