"""Checking an exercise whose answer is a script: run it anew, at several world sizes, and look at what it did."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .. import launch
from ..command import Command
from ..environment import SUBJECT
from ..result import LaunchError, RankFailed, Run, RunTimeout
from ..script import check_syntax
from ..view import shown_path
from .freshness import changed_since_it_ran, origin
from .verdict import Verdict

SECONDS = 20  # a right answer takes a fraction of one


class NotTried(Exception):
    """The machine could not run the script; that says nothing of the answer."""


class Wrong(Exception):
    """What is wrong with the script. `failure` is the text of the exception that ended a rank, if one did."""

    def __init__(self, hint: str, failure: str = "") -> None:
        super().__init__(hint)
        self.failure = failure


@dataclass
class Attempt:
    """The learner's script, and the runs that were made of it."""

    script: str
    runs: list[Run] = field(default_factory=list)

    def run(self, nproc: int, nnodes: int = 1, returns: tuple[str, ...] = ()) -> Run:
        """Run the script; raises Wrong when a rank fails or nothing ends."""
        return self.succeeded(self._start(Command(self.script, (), nproc, nnodes, returns=returns)))

    def run_through(self, harness: str, *args: str, nproc: int, nnodes: int = 1) -> Run:
        """Run the script inside one of our own, which watches it; the run may have failed. Raises Wrong for a hang."""
        path, subject = str(Path(__file__).with_name(harness)), str(Path(self.script).resolve())
        return self._start(Command(path, (args[0], subject, *args[1:]), nproc, nnodes), {SUBJECT: subject})

    def succeeded(self, run: Run) -> Run:
        if run.failure is None:
            return run
        cause = run.failure
        error = f"{cause.exception_type}: {cause.message}".strip().splitlines()[0]
        mine = str(Path(self.script).resolve())
        line = next((frame.line for frame in reversed(cause.frames) if frame.file == mine), None)
        at = f" ({self._line(line)})" if line else ""
        hint = f"{crowd(run)} rank {cause.rank} failed{at}: {error}\nIts output: {shown_path(run.log_dir)}"
        self.runs.remove(run)  # so that its logs stay
        raise Wrong(hint, f"{cause.exception_type}: {cause.message}")

    def _start(self, command: Command, env: dict[str, str] | None = None) -> Run:
        # One thread: a lone rank with a thread for each core took 14 s in place of 1 when others used the cores too.
        env = {"OMP_NUM_THREADS": "1", **(env or {})}
        options = launch.Options(timeout=SECONDS, env=env, cell=True, silent=True)
        try:
            run = launch.run(command, options)
        except RunTimeout as stopped:
            if not stopped.run.ranks:
                raise NotTried("This machine was too busy to start the ranks. Run this cell again.") from None
            where = str(stopped).partition("\n")[2]
            raise Wrong(f"{crowd(stopped.run)} the script did not end within {SECONDS} s: {where}") from None
        except RankFailed as failed:
            run = failed.run
        except LaunchError as error:
            raise Wrong(str(error)) from None
        self.runs.append(run)
        return run

    def _line(self, number: int) -> str:
        lines = Path(self.script).read_text(encoding="utf-8").splitlines()
        return f"cell line {number + 1}: {lines[number - 1].strip()}"


@dataclass(frozen=True)
class ScriptExercise:
    """An exercise that is solved in a script. `find_mistake` returns the hint for what is wrong, or None."""

    script: str
    find_mistake: Callable[[Attempt], str | None]
    tried: str  # what a right answer was run as

    def verdict(self, exercise: str) -> Verdict:
        """Run the script anew; a result of an earlier run or an earlier text counts for nothing."""
        path = Path(self.script)
        if not path.is_file():
            text = f"Not attempted yet: there is no {self.script}. Run the exercise's cell, which writes it."
            return Verdict(exercise, "unattempted", text)
        if changed_since_it_ran(path):
            text = f"Your cell was changed after it had written {self.script}. Run the cell again, then this one."
            return Verdict(exercise, "unattempted", text)
        try:
            hint = self._mistake()
        except NotTried as busy:
            return Verdict(exercise, "unattempted", str(busy))
        stub = _stub_line(path)
        if hint is None:
            kind, text = "passed", f"Right. {self.script} was run {self.tried}."
        elif stub:
            text = f"Not attempted yet: cell line {stub + 1} still held the dots when the cell was last run."
            kind = "unattempted"
        else:
            kind, text = "wrong", hint
        return Verdict(exercise, kind, "\n".join(filter(None, [text, origin(path)])))

    def _mistake(self) -> str | None:
        attempt = Attempt(self.script)
        try:
            check_syntax(Path(self.script), cell=True)
            return self.find_mistake(attempt)
        except (Wrong, LaunchError) as wrong:
            return str(wrong)
        finally:
            for run in attempt.runs:  # they would push the learner's own runs out of runs/
                shutil.rmtree(run.log_dir, ignore_errors=True)


def crowd(run: Run) -> str:
    """How many ran, as the start of a sentence: "With 3 processes", "On 2 nodes with 2 processes each"."""
    nodes = 1 + max((node_of(folder) for rank in run.ranks for folder in rank.folders), default=0)
    each = len(run.ranks) // nodes
    processes = f"{each} process{'es' if each != 1 else ''}"
    return f"With {processes}," if nodes == 1 else f"On {nodes} nodes with {processes} each,"


def node_of(folder: Path) -> int:
    """The node of a rank, from its logs' path (…/node1/run_x/attempt_0/3): a killed rank may have left no note."""
    return int(folder.parents[2].name.removeprefix("node"))


def _stub_line(path: Path) -> int | None:
    """The line with the ``...`` that stands where the solution belongs."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except SyntaxError:
        return None
    for node in nodes:
        if isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is ...:
            return node.lineno
    return None
