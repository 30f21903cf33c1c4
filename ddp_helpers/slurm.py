"""``python -m ddp_helpers slurm SCRIPT``: a Slurm job for a script, printed or written to a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .cluster import sbatch
from .result import LaunchError


def main(argv: list[str]) -> int:
    """Print the job, or write it; the exit code is 0, or 2 when there is none.

    main(["train.py", "--nodes", "2", "--gpus-per-node", "4", "--", "--lr", "0.1"])
    """
    dashes = argv.index("--") if "--" in argv else len(argv)
    parser = _parser()
    options, unknown = parser.parse_known_args(argv[:dashes])
    if unknown:
        parser.error(f"unknown: {' '.join(unknown)}. What belongs to the script goes behind two dashes: -- --lr 0.1")
    given = {name: value for name, value in vars(options).items() if name not in ("script", "output", "force")}
    try:
        job = sbatch(options.script, *argv[dashes + 1 :], **given)
    except LaunchError as error:
        parser.error(str(error))
    if options.output is None:
        sys.stdout.write(job)
    else:
        _write(job, options.output, options.force, parser)
        print(f"{options.output} is written. On the cluster: sbatch {options.output}", file=sys.stderr)
    return 0


def _write(job: str, path: Path, force: bool, parser: argparse.ArgumentParser) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as file:  # also when made on Windows
            file.write(job)
    except FileExistsError:
        parser.error(f"{path} exists, and may hold your edits: another --output, or --force.")
    except OSError as error:
        parser.error(f"{path} cannot be written: {error.strerror}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ddp_helpers slurm",
        usage="%(prog)s SCRIPT [options] [-- the script's arguments]",
        description="A Slurm job that runs a script, unchanged, with torchrun on several nodes.",
    )
    parser.add_argument("script", metavar="SCRIPT", help="as it is found from where you will call sbatch")
    parser.add_argument("--nodes", type=int, default=2, metavar="N", help="machines (2)")
    parser.add_argument("--nproc-per-node", type=int, metavar="N", help="ranks on each (as many as GPUs, else 1)")
    parser.add_argument("--gpus-per-node", type=int, default=0, metavar="N", help="GPUs on each (none)")
    parser.add_argument("--cpus-per-task", type=int, metavar="N", help="cores on each (as many as ranks)")
    parser.add_argument("--time", default="01:00:00", help="when Slurm ends it: minutes, H:MM:SS, D-HH (01:00:00)")
    parser.add_argument("--partition", default="", metavar="NAME", help="as your cluster's handbook says")
    parser.add_argument("--account", default="", metavar="NAME", help="as your cluster's handbook says")
    parser.add_argument(
        "--setup", action="append", default=[], metavar="LINE",
        help="a line that makes torchrun available, such as 'module load cuda'; can be given again",
    )  # fmt: skip
    parser.add_argument("--python", default="", metavar="PATH", help="an interpreter with torch, in place of torchrun")
    parser.add_argument("--interface", default="", metavar="NAME", help="the network that all nodes share, such as ib0")
    parser.add_argument("--max-restarts", type=int, default=0, metavar="N", help="torchrun's (0)")
    parser.add_argument("--requeue", action="store_true", help="start again, for scripts that go on from a checkpoint")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it there (default: print it)")
    parser.add_argument("--force", action="store_true", help="overwrite that file")
    return parser
