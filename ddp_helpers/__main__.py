"""``python -m ddp_helpers doctor``, ``explain LOG`` and ``clean``, for terminals."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import runs
from .doctor import main as doctor
from .faults.command import main as explain


def main(argv: list[str]) -> int:
    """Run one subcommand; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ddp_helpers")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", add_help=False, help="is this machine ready? (--json; exit code 1: no)")
    commands.add_parser("explain", add_help=False, help="why did this job fail? A log of any torchrun or srun job")
    clean = commands.add_parser("clean", help="remove the logs of finished runs")
    clean.add_argument("folder", nargs="?", default=".", type=Path, help="the notebooks' folder (default: this one)")
    clean.add_argument("--keep", type=int, default=0, metavar="N", help="keep the newest N runs (default: none)")
    options, rest = parser.parse_known_args(argv)
    if options.command == "doctor":
        return doctor(rest)
    if options.command == "explain":
        return explain(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.keep < 0:
        parser.error("--keep: a number of runs, 0 or more")
    removed = runs.prune(options.folder / "runs", options.keep)
    print(f"{removed} run{'s' * (removed != 1)} removed from {options.folder / 'runs'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
