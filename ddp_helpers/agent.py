"""torchrun's own agent, run for one node of one run: ``python -u agent.py FOLDER [torchrun arguments]``.

It calls ``torch.distributed.run.main``, as the torchrun command does, and adds what a notebook needs: it ends with the
notebook (its standard input is the lifeline), and it leaves failures.json, which ranks failed and how, in FOLDER.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


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
        _end_children()
    return 0


def _leave(folder: Path, content: dict[str, object]) -> None:
    (folder / "failures.tmp").write_text(json.dumps(content), encoding="utf-8")
    os.replace(folder / "failures.tmp", folder / "failures.json")


def _end_with_the_notebook() -> None:
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not Linux
        # What a dead rank had started comes to us, so that _watch can end it wherever it hid.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    threading.Thread(target=_watch, daemon=True, name="lifeline").start()


def _watch() -> None:
    while os.read(0, 64):
        pass
    _end_children()
    os._exit(1)


def _end_children() -> None:
    """Kill what ranks have left behind; all of it is below us, wherever it hid."""
    for _ in range(100):  # what is killed can have started more meanwhile
        try:
            if os.name != "nt" and os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        except ChildProcessError:
            return  # the usual case
        import psutil

        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        time.sleep(0.01)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder, whose files have common names
    sys.exit(main(sys.argv[1:]))
