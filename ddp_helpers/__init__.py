"""Run a notebook cell as a torchrun job.

>>> %load_ext ddp_helpers  # doctest: +SKIP

then, as a cell's first line: ``%%torchrun --nproc-per-node 4 scripts/hello.py``. From Python, `launch` does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import faults
from .doctor import doctor
from .exercises import check
from .faults import explain
from .launch import launch
from .predict import predict
from .result import LaunchError, Rank, RankFailed, Run, RunTimeout

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from . import explore, pictures

__all__ = [
    "LaunchError",
    "Rank",
    "RankFailed",
    "Run",
    "RunTimeout",
    "check",
    "doctor",
    "explain",
    "explore",
    "faults",
    "launch",
    "pictures",
    "predict",
]


def __getattr__(name: str) -> Any:
    if name in ("explore", "pictures"):  # matplotlib takes a second to import
        import importlib

        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register ``%%torchrun``, and import torch in the background so that the first run is quick."""
    from . import magic, warm
    from .pictures import show_figures

    magic.register(shell)
    show_figures(shell)
    warm.start_early()
