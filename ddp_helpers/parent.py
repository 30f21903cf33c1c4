"""The warm parent: the process that has torch imported and forks one torchrun agent for each run (see warm.py).

It has one thread, runs no tensor operation and never touches CUDA, so that a fork of it is as good as a new interpreter
once fresh.py has repaired what is not. It ends when the kernel does, and after ten idle minutes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import traceback
import weakref

from . import agent, fresh, hugepages, worker
from .warm import Request

IDLE_SECONDS = 600.0
SETTLE_SECONDS = 1.0  # idle for so long: time for hugepages.collapse
# Imported before the first run: what torchrun imports, and DistributedDataParallel(…) (890 modules, 1.1 s a rank).
PRELOAD = ("torch", "torch.distributed.run", "torch._dynamo", "torch.distributed.tensor", "torch.distributed.fsdp")


def main() -> None:
    """Serve the kernel that started this process; the argument is our end of its control socket."""
    serve(int(sys.argv[1]))


def serve(control_fd: int) -> None:
    """Fork an agent for each request until the kernel closes its end, or for ten idle minutes."""
    for name in PRELOAD:
        importlib.import_module(name)
    base_path = _path_of_a_fresh_interpreter()

    control = socket.socket(fileno=control_fd)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    agent.become_subreaper()  # an agent that is killed cannot end what its ranks had started
    _prepare_to_fork()
    settled = False
    while True:
        patience = (IDLE_SECONDS if settled else SETTLE_SECONDS) if not running else None
        ready, _, _ = select.select([control.fileno(), woken], [], [], patience)
        if not ready and settled:
            return
        if not ready:
            hugepages.collapse()
            settled = True
        if woken in ready:
            os.read(woken, 4096)
        _report_ended(running)
        if control.fileno() in ready:
            message, fds, _, _ = socket.recv_fds(control, 4096, 2)
            if not message:
                return
            if message.startswith(b"load "):
                _load(message[5:].decode().split(","))
                settled = False
            else:
                _start(fds, base_path, running)


def _path_of_a_fresh_interpreter() -> list[str]:
    own = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return [entry for entry in sys.path[1:] if entry not in own]


def _start(fds: list[int], base_path: list[str], running: dict[int, socket.socket]) -> None:
    channel, lifeline = socket.socket(fileno=fds[0]), fds[1]
    pid = os.fork()
    if pid == 0:
        _become_agent(channel, lifeline, base_path)
    os.close(lifeline)
    with contextlib.suppress(OSError):  # the kernel has gone: select will say so
        channel.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    running[pid] = channel


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        channel = running.pop(pid, None)
        if channel is None:
            continue  # an orphan of an agent that was killed
        if status:
            agent.end_children(keep=running)
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps({"exit": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
        channel.close()


def _load(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _prepare_to_fork()


def _prepare_to_fork() -> None:
    gc.collect()
    gc.freeze()  # no collection in a fork may write to, and so copy, the pages it shares with us
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # torch's own, thousands, which free what the end of a process frees: 40 ms a rank


def _become_agent(channel: socket.socket, lifeline: int, base_path: list[str]) -> None:
    """In the fork: be what ``python -u agent.py …`` is in a cold run."""

    code = 1
    try:
        request = Request(**json.loads(channel.makefile("r", encoding="utf-8").readline()))
        os.setsid()
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for source, target in ((lifeline, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(request.cwd)
        os.sched_setaffinity(0, request.cpus)
        os.umask(request.umask)
        os.environ.clear()
        os.environ.update(request.environ)
        fresh.reset_signals()
        fresh.reopen_streams()
        _fork_ranks(base_path)
        code = agent.main(request.argv)
    except BaseException:  # noqa: BLE001 - a fork must never return into its parent's code
        traceback.print_exc()
    finally:
        worker.flush()
        os._exit(code)


def _fork_ranks(base_path: list[str]) -> None:
    """Let torchrun's SubprocessHandler fork this process where it would start ``python -u worker.py …``."""
    import torch
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    # torchrun asks whether there are GPUs, to bind ranks to the NUMA nodes of theirs (LaunchConfig.__post_init__). The
    # question alone initialises the CUDA driver, and CUDA works in no fork after that. So a warm rank is not bound.
    asked = [(module, module.is_available) for module in (torch.cuda, torch.accelerator)]
    for module, _ in asked:
        module.is_available = lambda: False

    class ForkedRank(subprocess.Popen):  # type: ignore[type-arg]
        def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):  # type: ignore[no-untyped-def]
            stdout, stderr = rest[6], rest[8]  # startupinfo … p2cread p2cwrite c2pread c2pwrite errread errwrite …
            self.pid = os.fork()
            if self.pid == 0:
                for module, is_available in asked:
                    module.is_available = is_available
                _become_rank(list(args), env, stdout, stderr, base_path)
            self._child_created = True

    subprocess_handler.Popen = ForkedRank


def _close_files_and_sockets() -> None:
    """Close what the agent had open: its store's sockets above all, which must not outlive it in a rank.

    Pipes stay. libuv, below torch's store, keeps two in every process: whenever that process forks, the child closes
    these two numbers and opens them anew (uv__signal_global_reinit), whatever may have been opened there since.
    """
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):  # the descriptor that listdir itself used
            mode = os.fstat(fd).st_mode
            if fd > 2 and (stat.S_ISSOCK(mode) or stat.S_ISREG(mode)):
                os.close(fd)


def _become_rank(args: list[str], env: dict[str, str], stdout: int, stderr: int, base_path: list[str]) -> None:

    try:
        os.setsid()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        _close_files_and_sockets()
        fresh.run_rank(args[args.index("-u") + 1 :], env, base_path)
    except BaseException:  # noqa: BLE001 - as above
        traceback.print_exc()
    finally:
        worker.flush()
        os._exit(1)
