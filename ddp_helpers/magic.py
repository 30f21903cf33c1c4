"""%%torchrun and %torchrun: parse the line with torchrun's own parser, write the cell, call launch."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from .command import Command
from .hang import NOTICE_AFTER
from .launch import Options, number_of_processes, run
from .result import LaunchError, RankFailed, Run
from .script import write_script

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NOT_FOR_NOTEBOOKS = ("no_python", "run_path", "print_completion", "log_dir", "redirects", "tee", "start_method")


def register(shell: InteractiveShell) -> None:
    def torchrun(line: str, cell: str | None = None) -> None:
        run_line(shell, line, cell)

    torchrun.__doc__ = run_line.__doc__
    shell.register_magic_function(torchrun, "line_cell", "torchrun")
    # IPython takes "%%torchrun" below another line for a line magic of that odd name.
    shell.register_magic_function(_misplaced, "line", "%torchrun")


def _misplaced(line: str) -> NoReturn:
    raise LaunchError(
        "%%torchrun must be the very first line of its cell: move comments and everything else below it.\n"
        f"    %%torchrun {line}"
    )


def run_line(shell: InteractiveShell, line: str, cell: str | None = None) -> None:
    """Run this cell as a script on several processes, with torchrun's own command line::

        %%torchrun --nproc-per-node 4 scripts/hello.py --lr 0.1

    ``%torchrun … scripts/hello.py`` runs a script that exists. ``%torchrun --help`` lists all options of torchrun, and
    the notebook's own: --timeout, --notice, --return, --into, --expect-failure, --cold, --force.
    """
    options = parse(line)
    if options is None:
        return
    command = _command(options)
    if cell is None and _has_a_script_below(shell):
        raise LaunchError(
            "One % runs a script that exists, and the code below it would run in this notebook.\n"
            f"To make that code the script, write two: %%torchrun {line}"
        )
    if cell is not None:
        if command.module:
            raise LaunchError("-m runs an installed module, and a cell is a script: use %torchrun -m …, with one %.")
        write_script(command.script, cell, options.force)
    result: Run | None
    shell.user_ns.pop(options.into, None)  # a run that is stopped must not leave an earlier one's result there
    engine = "cold" if options.cold else "auto"
    settings = Options(options.timeout, {}, engine, cell=cell is not None, notice_after=options.notice)
    try:
        result = run(command, settings)
    except LaunchError as failure:
        if not options.expect_failure:
            raise
        print(failure.as_expected())
        result = failure.run if isinstance(failure, RankFailed) else None
    else:
        if options.expect_failure:
            raise LaunchError("This cell expects the run to fail (--expect-failure), and every rank succeeded.")
    if options.into:
        shell.user_ns[options.into] = result


def _has_a_script_below(shell: InteractiveShell) -> bool:
    """Whether the running cell is ``%torchrun …`` with code of a rank below it: a % was forgotten."""
    first, _, rest = shell.history_manager.input_hist_raw[-1].partition("\n")
    return first.startswith("%torchrun") and "init_process_group(" in rest


def parse(line: str) -> argparse.Namespace | None:
    """The options of a magic line; None after --help.

    Raises:
        LaunchError: with torchrun's own words for what is wrong.
    """
    from IPython.utils.process import arg_split

    try:
        return _parser().parse_args(arg_split(line, posix=True))
    except _HelpShown:
        return None


class _HelpShown(Exception):
    pass


def _parser() -> argparse.ArgumentParser:
    parser = _torchrun_parser()
    ours = parser.add_argument_group("notebook options")
    ours.add_argument("--timeout", type=float, default=300.0, metavar="S", help="stop the ranks after S seconds (300)")
    ours.add_argument(
        "--notice", type=float, default=NOTICE_AFTER, metavar="S",
        help=f"say who waits for whom when nothing has moved for S seconds ({NOTICE_AFTER:g}); 0: never",
    )  # fmt: skip
    ours.add_argument(
        "--return", dest="returns", action="append", default=[], metavar="NAME",
        help="bring this global of each rank's script back: run.ranks[i].returned[NAME]",
    )  # fmt: skip
    ours.add_argument("--into", metavar="VAR", help="keep the Run in this variable of the notebook")
    ours.add_argument("--expect-failure", action="store_true", help="the run must fail; the notebook goes on")
    ours.add_argument("--cold", action="store_true", help="start new interpreters, as the torchrun command does")
    ours.add_argument("--force", action="store_true", help="overwrite an edited script; it is kept as SCRIPT.bak")
    return parser


def _torchrun_parser() -> argparse.ArgumentParser:
    from torch.distributed.run import get_args_parser

    def fail(message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            message = "the line names no script"
        elif message.startswith("unrecognized arguments"):
            message += "".join(_did_you_mean(word, parser) for word in message.split() if word.startswith("-"))
        raise LaunchError(
            f"%%torchrun: {message}\nThe line reads: %%torchrun [options] SCRIPT [the script's arguments]"
        )

    def leave(status: int = 0, message: str | None = None) -> NoReturn:
        raise _HelpShown

    parser: argparse.ArgumentParser = get_args_parser()
    parser.error, parser.exit = fail, leave  # type: ignore[method-assign]
    parser.prog = "%%torchrun"
    return parser


def _did_you_mean(word: str, parser: argparse.ArgumentParser) -> str:
    option = word.partition("=")[0]
    similar = difflib.get_close_matches(option, parser._option_string_actions, n=1)
    return f". Did you mean {similar[0]}?" if similar else ""


def _command(options: argparse.Namespace) -> Command:
    if options.into and not options.into.isidentifier():
        raise LaunchError(f"--into {options.into}: this is the name of a variable.")
    least, _, most = str(options.nnodes).partition(":")  # torchrun's default is 1:1
    if not least.isdigit() or most not in ("", least):
        raise LaunchError(f"--nnodes {options.nnodes}: in a notebook this is one number; this machine plays all nodes.")
    return Command(
        script=options.training_script,
        script_args=tuple(options.training_script_args),
        nproc=number_of_processes(options.nproc_per_node),
        nnodes=int(least),
        torchrun_args=tuple(_given(options)),
        module=options.module,
        returns=tuple(options.returns),
    )


def _given(options: argparse.Namespace) -> list[str]:
    """torchrun's options that differ from its defaults, as words of a command line."""
    words: list[str] = []
    parser = _torchrun_parser()
    apart = {"nproc_per_node", "nnodes", "module", "training_script", "training_script_args", "help"}
    for action in parser._actions:
        value: Any = getattr(options, action.dest, None)
        if action.dest in apart or value == action.default or value is None:
            continue
        flag = next(name for name in action.option_strings if name.startswith("--"))
        if action.dest in NOT_FOR_NOTEBOOKS:
            raise LaunchError(f"{flag} has no use in a notebook, where each rank's output is kept and shown anyway.")
        words += [flag] if value is True else [flag, ",".join(value) if isinstance(value, list) else str(value)]
    return words
