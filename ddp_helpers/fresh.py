"""A fork must not show: makes a fork of the warm parent what a new interpreter would be.

Each repair answers a difference that was seen, and tests/runs/test_engines.py compares the two engines. What stays
shared: the seed of string hashes, and the modules that are already imported (a script's own ``numpy.py`` would not be
found).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import sys
from typing import NoReturn

from . import worker

# faulthandler's, since the parent started (PYTHONFAULTHANDLER=1); it writes to descriptor 2, which is the rank's now.
FAULTS = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}


def run_rank(argv: list[str], environ: dict[str, str], base_path: list[str]) -> NoReturn:
    """Make this fork of the warm parent what ``python -u worker.py …`` would be, run the script in it, and end."""
    os.environ.clear()
    os.environ.update(environ)
    reset_signals()
    own = [os.path.abspath(entry) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = ["", *own, *base_path]
    sys.argv[:] = argv
    for name in [name for name in sys.modules if name.partition(".")[0] == "ddp_helpers"]:
        del sys.modules[name]
    _reseed_and_set_threads(environ)
    worker.end(worker.main(argv[1:]))


def reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP} - FAULTS:
        with contextlib.suppress(OSError, ValueError):  # the C library keeps two real-time signals for itself
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def reopen_streams() -> None:
    """Give an agent the streams that ``python -u`` has; its ranks inherit them, with files of their own below."""
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115
    for fd, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(fd, "w", closefd=False)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(raw, "utf-8", errors, newline="\n", write_through=True)  # what -u gives
        stream.mode = "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _reseed_and_set_threads(environ: dict[str, str]) -> None:
    """Give this rank its own random states and the thread counts that a fresh process reads from its environment.

    (Python's own `random` seeds itself anew in every fork.)
    """
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    torch = sys.modules["torch"]
    torch.default_generator.seed()
    sys.modules["torch.distributed"].set_debug_level_from_env()
    threads = environ["OMP_NUM_THREADS"].partition(",")[0]  # "4,2" is one number for each level of nesting
    if threads.isdigit():
        torch.set_num_threads(int(threads))
    blas = environ.get("OPENBLAS_NUM_THREADS", threads)
    if blas.isdigit():
        _set_blas_threads(int(blas))


def _set_blas_threads(threads: int) -> None:
    """NumPy's OpenBLAS read its thread count when the warm parent loaded it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        libraries = {line.split()[-1] for line in maps if "openblas" in line}
    for library in libraries:
        handle = ctypes.CDLL(library)
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("64_", ""):
                function = getattr(handle, f"{prefix}_set_num_threads{suffix}", None)
                if function:
                    function(threads)
