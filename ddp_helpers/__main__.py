"""``python -m ddp_helpers doctor``, ``explain LOG``, ``slurm SCRIPT`` and ``clean``, for terminals."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import runs
from .doctor import main as doctor
from .faults.command import main as explain
from .slurm import main as slurm

COMMANDS = {"doctor": doctor, "explain": explain, "slurm": slurm}  # each reads its own options


def main(argv: list[str]) -> int:
    """Run one subcommand; its exit code."""
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]](argv[1:])
    parser = argparse.ArgumentParser(prog="python -m ddp_helpers")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", add_help=False, help="is this machine ready? (--json; exit code 1: no)")
    commands.add_parser("explain", add_help=False, help="why did this job fail? A log of any torchrun or srun job")
    commands.add_parser("slurm", add_help=False, help="the job that runs a script on a Slurm cluster")
    clean = commands.add_parser("clean", help="remove the logs of finished runs")
    clean.add_argument("folder", nargs="?", default=".", type=Path, help="the notebooks' folder (default: this one)")
    clean.add_argument("--keep", type=int, default=0, metavar="N", help="keep the newest N runs (default: none)")
    options = parser.parse_args(argv)
    if options.keep < 0:
        parser.error("--keep: a number of runs, 0 or more")
    removed = runs.prune(options.folder / "runs", options.keep)
    print(f"{removed} run{'s' * (removed != 1)} removed from {options.folder / 'runs'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
