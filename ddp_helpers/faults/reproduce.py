"""reproduce(): make a known fault happen, here and now."""

from __future__ import annotations

import difflib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from ..result import LaunchError, RankFailed, Run, RunTimeout
from ..script import write_script
from .catalogue import by_id
from .fault import Fault

FOLDER = "scripts/faults"  # in the notebook's folder
TIMEOUT = 60  # seconds; the scripts that wait give up by themselves after a few
PLACES = {"gpu": "a GPU", "two nodes": "two nodes", "container": "a container"}
COMMAND = re.compile(r"# torchrun --nproc-per-node (\d+) \S+\.py(.*)")
# The scripts talk gloo on the CPU, and some show what happens without a GPU: with GPUs hidden they do so everywhere.
NO_GPUS = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Recipe:
    """How a fault's script is run; its first line says so: "# torchrun --nproc-per-node 2 port-taken.py"."""

    processes: int
    arguments: tuple[str, ...]
    text: str

    @classmethod
    def of(cls, script: Path) -> Recipe:
        text = script.read_text(encoding="utf-8")
        command = COMMAND.match(text)
        if command is None:
            raise ValueError(f"the first line of {script.name} is no torchrun command")
        return cls(int(command[1]), tuple(shlex.split(command[2])), text)


def reproduce(id: str, force: bool = False) -> Run:
    """Run the script that shows a fault, on two ranks of this machine, and return its run.

    >>> run = reproduce("port-taken")  # doctest: +SKIP
    >>> explain(run).fault.cure  # doctest: +SKIP
    'Leave --master-port out: …'

    The script is written to scripts/faults/ID.py: open it, change it, run it with %torchrun. That the run fails is
    what it is for, so its error is shown and not raised.

    Args:
        id: the fault's name, as table() and explain() give it.
        force: write the script anew where it was edited; the edited one is kept as ID.py.bak.

    Raises:
        LaunchError: no such fault, or it cannot happen on this machine alone; the script was edited.
        RunTimeout: it did not end within a minute, which no reproduction should.
    """
    from ..launch import launch  # here, because launch asks this package to explain what failed

    fault = _known(id)
    if fault.script is None:
        raise LaunchError(_why_not(fault))
    recipe, path = Recipe.of(fault.script), f"{FOLDER}/{fault.id}.py"
    write_script(path, recipe.text, force)
    print(f"{path} is written. It is run as: torchrun --nproc-per-node {recipe.processes} {path}", *recipe.arguments)
    try:
        run = launch(path, *recipe.arguments, nproc_per_node=recipe.processes, timeout=TIMEOUT, env=NO_GPUS)
    except RunTimeout:
        raise
    except RankFailed as failed:
        print(failed.as_expected())
        return failed.run
    print(_end_without_error(fault))
    return run


def _known(id: str) -> Fault:
    if id in by_id():
        return by_id()[id]
    near = difflib.get_close_matches(id.lower(), by_id(), n=3, cutoff=0.5)
    near += [known for known in by_id() if id and id.lower() in known and known not in near]
    hint = f" Near it: {', '.join(near[:6])}." if near else ""
    raise LaunchError(
        f"There is no fault {id!r}.{hint}\nfaults.table() lists all, faults.table(search=…) those you seek."
    )


def _why_not(fault: Fault) -> str:
    if fault.needs != "cpu":
        why = f"it needs {PLACES[fault.needs]}"
    else:
        why = fault.no_script or "it is what other ranks say when one has failed: reproduce rank-raises"
    return f"{fault.id} has no reproduction: {why}.\nIt means: {fault.means}\nCure: {fault.cure}"


def _end_without_error(fault: Fault) -> str:
    if fault.silent:
        return f"No rank failed, as expected: this fault is silent. {fault.means}"
    if fault.kind == "warning":
        return f"No rank failed, as expected: this is only a warning. {fault.means}"
    return f"This time no rank failed. {fault.sure}"
