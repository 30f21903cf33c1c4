"""What runs inside each rank before the learner's script: ``python -u worker.py NAMES [-m] SCRIPT [ARGS]``.

It uses nothing but the standard library, and the script never sees it: the script gets the ``__main__``, ``sys.argv``
and ``sys.path`` that ``python -u SCRIPT ARGS`` would give it. Beside the rank's logs it leaves rank.json (pid),
error.json (the exception, in torchrun's own form) and returned.pt or returned.pickle (the globals named in NAMES).
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import faulthandler
import importlib.machinery
import importlib.util
import io
import json
import os
import pickle
import runpy
import select
import signal
import sys
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
HERE = os.path.abspath(__file__)
_script_path = ""  # kept, since a script may change sys.argv and its working directory
_subject = ""  # the file whose lines are named, where the script runs another: an exercise's harness the learner's
_ending = False  # the script is through: what is left are its threads and what it registered with atexit


def main(argv: list[str]) -> int:
    """Run the script of this rank; the exit code it would have had."""
    global _subject
    _subject = os.environ.pop("DDP_HELPERS_SUBJECT", "")
    # The notebook's folder is importable, but after all else: a random.py beside the notebook must not become ours.
    sys.path.append(os.getcwd())
    folder = Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parent
    _stay_reachable(folder)
    names, *script = argv
    rank_pid = os.getpid()
    try:
        try:
            script_globals = _run_script(script)
        except SystemExit as stop:
            if stop.code:
                raise
            script_globals = sys.modules["__main__"].__dict__
        if os.getpid() == rank_pid:  # and no fork that the script made and let run on
            _write(folder / "imported.json", dict.fromkeys(name for name in sys.modules if "." not in name))
            _bring_back([name for name in names.split(",") if name], script_globals, folder)
    except SystemExit as stop:
        return _exit_code(stop, folder)
    except BaseException as error:  # noqa: BLE001 - whatever ended the script, KeyboardInterrupt too, is recorded
        return _report(error, folder)
    return 0


def _run_script(script: list[str]) -> dict[str, Any]:
    global _script_path
    if script[0] == "-m":
        sys.argv[:] = script[1:]
        sys.path[0] = os.getcwd()
        spec = importlib.util.find_spec(script[1])
        _script_path = (spec and spec.origin) or ""
        return runpy.run_module(script[1], run_name="__main__", alter_sys=True)
    path = _script_path = os.path.abspath(script[0])
    sys.argv[:] = script
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    # A new __main__, as in a fresh interpreter: pickle and spawned DataLoader workers look classes up in it.
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __loader__=loader, __builtins__=builtins, __spec__=None, __cached__=None)
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module.__dict__


# ---- what comes back ------------------------------------------------------------------------------------------------


def _bring_back(names: list[str], script_globals: dict[str, Any], folder: Path) -> None:
    if not names:
        return
    missing = [name for name in names if name not in script_globals]
    if missing:
        raise NameError(f"the script has no global named {missing[0]!r} to return (--return {missing[0]})")
    values = {name: script_globals[name] for name in names}
    if "torch" in sys.modules:
        sys.modules["torch"].save(values, folder / "returned.pt")
    else:
        (folder / "returned.pickle").write_bytes(pickle.dumps(values))


def _exit_code(stop: SystemExit, folder: Path) -> int:
    _record(stop, folder)
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def _report(error: BaseException, folder: Path) -> int:
    """Print the traceback as Python would, from the script's first line on, and record it for torchrun and the cell."""
    if hasattr(signal, "SIGCHLD"):  # torch's handler raises once more when a DataLoader's worker was killed
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    error.__traceback__ = _without_our_frames(error.__traceback__)
    _record(error, folder)
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):  # Python ends by the signal itself, so that the caller can tell
        flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def _without_our_frames(tb: types.TracebackType | None) -> types.TracebackType | None:
    while tb and tb.tb_frame.f_code.co_filename in (HERE, runpy.__file__, "<frozen runpy>"):
        tb = tb.tb_next
    return tb


def _record(error: BaseException, folder: Path) -> None:
    """Write error.json: the keys that torch's ErrorHandler writes, and ours beside them."""
    tb = _without_our_frames(error.__traceback__)
    frames = [[f.filename, f.lineno, f.name, f.line] for f in traceback.extract_tb(tb)]
    if isinstance(error, SyntaxError):  # in a module that the script imports: the script itself was compiled before
        frames.append([error.filename, error.lineno, "<module>", error.text])
    text = "".join(traceback.format_exception(type(error), error, tb))
    try:
        message = str(error)
    except Exception as another:  # noqa: BLE001 - a script's own __str__ may do anything
        message = f"<its __str__ raised {type(another).__name__}>"
    summary = f"{type(error).__name__}: {message}"
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    ours = {"type": type(error).__name__, "text": message, "frames": frames, "traceback": text, "time": time.time()}
    ours["script"] = _script_path
    _write(folder / "error.json", {"message": {"message": summary, "extraInfo": extra}, "ddp_helpers": ours})


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON so that a reader finds either nothing or all of it."""
    with contextlib.suppress(OSError):  # a full disk must not hide the error that is being recorded
        path.with_suffix(".tmp").write_text(json.dumps(content), encoding="utf-8")
        os.replace(path.with_suffix(".tmp"), path)


# ---- staying reachable, and not outliving the notebook --------------------------------------------------------------


def _stay_reachable(folder: Path) -> None:
    """Say who we are, end when the notebook ends, and answer "where are you?" while the script is blocked."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not Linux
        # For a rank stuck in C code that holds the interpreter lock: the kernel ends it when its agent is gone.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    lifeline = os.dup(0)  # standard input is a pipe whose other end only the notebook's kernel holds
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    question = -1
    with contextlib.suppress(OSError, AttributeError):  # no named pipes on Windows and some network file systems
        os.mkfifo(folder / "where")
        question = os.open(folder / "where", os.O_RDWR | os.O_NONBLOCK)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, open(folder / "stack.txt", "w", encoding="utf-8"))  # noqa: SIM115
    threading.Thread(target=_watch, args=(lifeline, question, folder), daemon=True, name="lifeline").start()
    ids = {"rank": int(os.environ["RANK"]), "local_rank": int(os.environ["LOCAL_RANK"])}
    ids["node"] = int(os.environ["GROUP_RANK"])
    _write(folder / "rank.json", {**ids, "pid": os.getpid(), "agent": os.getppid(), "time": time.time()})


def _watch(lifeline: int, question: int, folder: Path) -> None:
    if question < 0:
        while os.read(lifeline, 1):
            pass
        _end_group()
    while True:
        try:
            ready, _, _ = select.select([lifeline, question], [], [])
        except (OSError, ValueError):
            return  # the script closed every file descriptor, as a daemon would
        if lifeline in ready and not os.read(lifeline, 1):
            _end_group()
        if question in ready and os.read(question, 64):
            with contextlib.suppress(OSError):  # whatever becomes of here.py, the lifeline must hold
                _write(folder / "here.json", _where())


def _end_group() -> NoReturn:
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # DataLoader workers and whatever else the script started
    os._exit(1)


def _where() -> dict[str, Any]:
    """What here.py finds, and how far this rank is. That file is loaded when it is needed, and nobody else sees it."""
    spec = importlib.util.spec_from_file_location("here", os.path.join(os.path.dirname(HERE), "here.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    subject = _subject or _script_path
    return {"script": subject, "ending": _ending, **module.here(_script_path, subject), "time": time.time()}


# ---- the end --------------------------------------------------------------------------------------------------------


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed by the script, or the disk is full
            stream.flush()


def end(code: int) -> NoReturn:
    """End as the interpreter ends, less the freeing of memory and C++ objects, which is where torch can abort."""
    global _ending
    _ending = True
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    end(main(sys.argv[1:]))
