"""`python -m ddp_helpers explain LOG`: the cause of a failure in a terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import diagnose
from .explain import explain


def main(argv: list[str] | None = None) -> int:
    """Print the explanation; the exit code is 0 when the cause was found, 1 when it is not in the log.

    main(["job.out"])   # a file, or the folder of torchrun --log-dir
    main(["-"])         # standard input: torchrun train.py 2>&1 | python -m ddp_helpers explain -
    """
    parser = argparse.ArgumentParser(prog="python -m ddp_helpers explain", description="Why did this job fail?")
    parser.add_argument("log", metavar="LOG", help="a file, a folder of torchrun --log-dir, or - for standard input")
    options = parser.parse_args(argv)
    if options.log == "-":
        explanation = diagnose.log(sys.stdin.buffer.read())
    elif Path(options.log).exists():
        explanation = explain(Path(options.log))
    else:
        parser.error(f"there is no file {options.log}")
    encoding = sys.stdout.encoding or "utf-8"
    # A terminal that cannot show "×" gets "?" in its place, not a traceback.
    sys.stdout.write(repr(explanation).encode(encoding, "replace").decode(encoding) + "\n")
    return 0 if explanation.known else 1
