"""The warm engine, the kernel's half: start the warm parent (parent.py), have it fork an agent for each run.

For a run the kernel sends one end of a socket pair (the channel) and the reading end of a pipe (the lifeline). The
agent reads its request from the channel; the parent answers on it with the agent's pid and, later, its exit status.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .devices import Devices
from .environment import RUN_MARK, import_time_settings, rank_environment
from .interrupts import Interrupts

PARENT_IS_GONE = -9  # in place of an agent's exit code: what has killed the parent ends its run too
PACKAGE_PARENT = str(Path(__file__).resolve().parents[1])
# Imported by the parent when a run has used them: slow, and known to start no thread.
LOADABLE = frozenset({"torchvision", "PIL", "matplotlib", "tqdm", "sklearn", "pandas", "scipy"})


@dataclass
class Request:
    """What an agent is told: its arguments, and everything a fork would otherwise have from its parent."""

    argv: list[str]
    environ: dict[str, str]
    log: str
    cwd: str = field(default_factory=os.getcwd)
    cpus: list[int] = field(default_factory=lambda: sorted(os.sched_getaffinity(0)))
    umask: int = field(default_factory=lambda: _umask())


def _umask() -> int:
    """This process's umask, read without changing it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Umask:")), 8)


class WarmAgent:
    """An agent forked by the warm parent: what launch() needs of `subprocess.Popen`, and no more."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines = channel.makefile("r", encoding="utf-8")
        self.pid = int(self._read()["pid"])
        self.returncode: int | None = None

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        return json.loads(line) if line else {"pid": -1, "exit": None}

    def fileno(self) -> int:
        """Readable when the agent has ended (or the warm parent has)."""
        return self._channel.fileno()

    def poll(self) -> int | None:
        """The agent's exit code, None while it runs, PARENT_IS_GONE when nobody knows it any more."""
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            code = self._read()["exit"]
            self.returncode = PARENT_IS_GONE if code is None else code
        return self.returncode

    def close(self) -> None:
        self._lines.close()
        self._channel.close()


class WarmParent:
    """The kernel's handle on its warm parent; starts it and sends it requests."""

    def __init__(self, environ: dict[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = import_time_settings(environ)
        # One BLAS thread: NumPy's OpenBLAS starts the others at import, and a process with threads is no good to fork.
        environ = {**environ, "OPENBLAS_NUM_THREADS": "1", RUN_MARK: ""}
        code = f"import sys; sys.path[0] = {PACKAGE_PARENT!r}; from ddp_helpers import parent; parent.main()"
        command = [sys.executable, "-c", code, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Jupyter interrupts the kernel's whole process group
            )
        self._control = ours
        self.pid = self._process.pid
        self.settings = settings
        self._loaded: set[str] = set()

    def alive(self) -> bool:
        return self._process.poll() is None

    def start_agent(self, request: Request, lifeline: int, interrupts: Interrupts) -> WarmAgent:
        """Have an agent forked. Raises OSError when the parent has ended.

        The first time, this waits until the parent has imported torch. After an interrupt the agent, if it comes to
        life yet, finds its lifeline cut.
        """
        channel, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"run"], [theirs.fileno(), lifeline])
        channel.sendall(json.dumps(asdict(request)).encode() + b"\n")
        while not select.select([channel], [], [], 0.1)[0]:
            if interrupts.count:
                channel.close()
                raise KeyboardInterrupt
        agent = WarmAgent(channel)
        if agent.pid < 0:
            agent.close()
            raise OSError("the warm parent ended before it could start a run")
        return agent

    def load(self, modules: set[str]) -> None:
        """Ask for packages that a run has just imported, so that the next one finds them there."""
        new = (modules & LOADABLE) - self._loaded
        if new:
            self._loaded |= new
            with contextlib.suppress(OSError):
                self._control.send(b"load " + ",".join(sorted(new)).encode())

    def stop(self) -> None:
        self._control.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:  # still importing
            self._process.kill()
            self._process.wait()


_parent: WarmParent | None = None  # this kernel's; made by the first run, or by loading the extension


def parent(environ: dict[str, str]) -> WarmParent:
    """The kernel's warm parent, started if there is none that lives."""
    global _parent
    if _parent is None or not _parent.alive():
        if _parent is None:
            atexit.register(shut_down)
        else:
            _parent.stop()  # it ended by itself, after ten idle minutes or by a signal: our end is still open
        _parent = WarmParent(environ)
    return _parent


def shut_down() -> None:
    """End the warm parent (it ends with this process anyway); the next run starts another."""
    global _parent
    if _parent is not None:
        _parent.stop()
        _parent = None


def start_early() -> None:
    """Start the parent before the first run needs it: it imports while the learner reads."""
    if sys.platform == "linux":
        parent(rank_environment(Devices("cpu", "gloo", ""), 1, {}, os.environ))


def settings_of_the_parent() -> dict[str, str] | None:
    """The import-time settings that the living parent was started with; None when there is none."""
    return _parent.settings if _parent and _parent.alive() else None


def preload(modules: set[str]) -> None:
    if _parent and _parent.alive():
        _parent.load(modules)
