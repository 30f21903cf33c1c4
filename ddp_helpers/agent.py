"""torchrun's own agent, run for one node of one run: ``python -u agent.py FOLDER [torchrun arguments]``.

It calls ``torch.distributed.run.main``, as the torchrun command does, and adds what a notebook needs: it ends with the
notebook (its standard input is the lifeline), and it leaves failures.json, which ranks failed and how, in FOLDER.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import sys
import threading
import traceback
import warnings
from collections.abc import Collection
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LOOK_SECONDS = 0.1  # torchrun's own default of --monitor-interval


def main(argv: list[str]) -> int:
    """Run torchrun with ``argv[1:]``; 0 when every rank succeeded."""
    folder = Path(argv[0])
    _end_with_the_notebook()
    # Python warns of fork() beside other threads. Here they are the lifeline's, which waits in a system call, and those
    # of torch's store, and the forked rank uses neither.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.run import main as torchrun

    from ddp_helpers.rendezvous import LoopbackRendezvous

    rendezvous_handler_registry.register("loopback", LoopbackRendezvous)  # also where the package is not installed
    _look_when_a_rank_ends()
    try:
        torchrun(argv[1:])
    except ChildFailedError as error:
        failures = {rank: {"exit_code": f.exitcode, "pid": f.pid} for rank, f in error.failures.items()}
        _leave(folder, {"failures": failures})
        print(error, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - the notebook shows why no rank was started
        _leave(folder, {"error": f"{type(error).__name__}: {error}"})
        traceback.print_exc()
        return 1
    finally:
        if _has_children():
            end_children()
    return 0


def _look_when_a_rank_ends() -> None:
    """Let torchrun look at its ranks when one ends, and else ten times a second, in place of a hundred times.

    With as many ranks as cores, each look takes time from a rank, and the others wait for that one in their next
    collective: 1.2 % of a core for the looks, 3 % of the training throughput (2 ranks on 2 cores).
    """
    if not hasattr(os, "pidfd_open"):  # not Linux: --monitor-interval alone
        return
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    look = LocalElasticAgent._monitor_workers

    def wait_and_look(self: LocalElasticAgent, worker_group: object) -> object:
        if self._pcontext is not None:
            _wait_for_an_end(list(self._pcontext.pids().values()), LOOK_SECONDS)
        return look(self, worker_group)

    LocalElasticAgent._monitor_workers = wait_and_look


def _wait_for_an_end(pids: list[int], seconds: float) -> None:
    watched = []
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # ended, and seen before
                watched.append(os.pidfd_open(pid))
        select.select(watched, [], [], seconds)
    finally:
        for fd in watched:
            os.close(fd)


def _leave(folder: Path, content: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # a full disk; the notebook looks for that
        (folder / "failures.tmp").write_text(json.dumps(content), encoding="utf-8")
        os.replace(folder / "failures.tmp", folder / "failures.json")


def _end_with_the_notebook() -> None:
    become_subreaper()
    threading.Thread(target=_watch, daemon=True, name="lifeline").start()


def _watch() -> None:
    while os.read(0, 64):
        pass
    end_children()
    os._exit(1)


def _has_children() -> bool:
    try:
        return os.name != "nt" and bool(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        return False


def end_children(keep: Collection[int] = ()) -> None:
    """Kill what ranks have left behind: all that is below this process, wherever it hid, but for the pids to keep."""
    import psutil

    for _ in range(100):  # what is killed can have started more meanwhile
        children = [child for child in psutil.Process().children() if child.pid not in keep]
        if not children:
            return
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in (*child.children(recursive=True), child):
                    process.kill()
        psutil.wait_procs(children, timeout=0.1)


def become_subreaper() -> None:
    """Have the orphans below this process become its children, so that end_children finds them (Linux)."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not Linux
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder, whose files have common names
    sys.exit(main(sys.argv[1:]))
