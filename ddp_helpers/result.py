"""What a run leaves: `Run`, its `Rank`s, its `Failure`; and the three exceptions, which carry their evidence."""

from __future__ import annotations

import pickle
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

MAX_WIDTH = 76  # characters of a line of an error; fits a projector's 1024 pixels


class Frame(NamedTuple):
    file: str
    line: int | None
    function: str
    text: str | None
    in_script: bool


@dataclass
class Failure:
    """The first failure of a run. `line` is the script's line, the cell's is one more; `victims` fell with it,
    `finished` had reached the end of the script.

    `exception_type` is the signal's name for a rank that was killed or crashed, "exit" for one that ended with a code
    and no exception, and "RunTimeout", with rank -1, for a run that was stopped at its timeout.
    """

    rank: int
    exception_type: str
    message: str
    line: int | None
    traceback: str
    victims: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)  # outermost first
    others: list[Failure] = field(default_factory=list)  # what went wrong on other ranks, and is no echo of this
    time: float = 0.0


@dataclass
class Rank:
    """One process of a run. `exit_code` is None when the run was stopped before torchrun could report it."""

    rank: int
    local_rank: int
    pid: int | None
    exit_code: int | None
    folders: list[Path] = field(repr=False)  # one an attempt: stdout.log, stderr.log and what worker.py leaves

    @property
    def stdout(self) -> str:
        """All that this rank printed, read from its file."""
        return self._read("stdout.log")

    @property
    def stderr(self) -> str:
        return self._read("stderr.log")

    @property
    def returned(self) -> dict[str, Any]:
        """The globals brought back with ``--return``; tensors are on the CPU."""
        with_torch, without = (self.folders[-1] / f"returned.{kind}" for kind in ("pt", "pickle"))
        try:
            if without.exists():
                return dict(pickle.loads(without.read_bytes()))
            if with_torch.exists():
                import torch

                return dict(torch.load(with_torch, map_location="cpu", weights_only=False))  # our own rank wrote it
            return {}
        except AttributeError as error:
            raise LaunchError(
                f"rank {self.rank} returned an object of a class that only its script defines ({error}).\n"
                "Return what the kernel can know: numbers, strings, lists, dicts, tensors, a state_dict()."
            ) from error

    def _read(self, name: str) -> str:
        texts = [(f / name).read_bytes().decode("utf-8", "replace") for f in self.folders if (f / name).exists()]
        return "".join(texts)


@dataclass
class Run:
    """A finished run.

    >>> run = launch("scripts/hello.py", nproc_per_node=2)  # doctest: +SKIP
    >>> run.ranks[1].stdout  # doctest: +SKIP
    'hello from rank 1\\n'

    `command` is what to type in a terminal for the same run; `seconds` is wall time from start to end; `metrics` has
    a dict for each printed line with ``key=value`` words, in the order of arrival: ``{"rank": 0, "loss": 0.52}``.
    """

    script: str
    command: str
    exit_code: int
    seconds: float
    engine: str
    device: str
    backend: str
    ranks: list[Rank]
    metrics: list[dict[str, float]]
    failure: Failure | None
    log_dir: Path

    def __repr__(self) -> str:
        n = len(self.ranks)
        return f"<Run of {self.script}: {n} rank{'s' * (n != 1)}, exit code {self.exit_code}, {self.seconds:.2f} s>"


class LaunchError(Exception):
    """The run could not be started; the message says what to do. No rank ran."""

    def _render_traceback_(self) -> list[str]:  # IPython shows this in place of a traceback through our own code
        first, *rest = f"{type(self).__name__}: {self}".splitlines()
        return [f"\x1b[1;31m{_wrapped(first)}\x1b[0m", *map(_wrapped, rest)]

    def as_expected(self) -> str:
        """What to print where this error was wanted."""
        return "\n".join(map(_wrapped, f"{type(self).__name__}, as expected: {self}".splitlines()))


def _wrapped(line: str) -> str:
    """Wrap a line between words: JupyterLab wraps the text of errors anywhere. Lines of code are left as they are."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    if len(line) <= MAX_WIDTH or ":  " in line:
        return line
    return textwrap.fill(line, MAX_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class RankFailed(LaunchError):
    """A rank failed. `run` is the whole run, `run.failure` the cause."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


class RunTimeout(RankFailed):
    """The run was stopped at its timeout; the message says where each rank was."""


class RunInterrupted(KeyboardInterrupt):
    """The stop button: a KeyboardInterrupt that spares the reader a traceback through our own code.

    Its message is the notice that stood there: who waited for whom; "" of a run that moved.
    """

    def _render_traceback_(self) -> list[str]:
        return ["Interrupted: you stopped this cell, and the cells below it were not run.", *str(self).splitlines()]
