"""`python -m ddp_helpers doctor`: the report in a terminal."""

from __future__ import annotations

import argparse
import json
import sys

from .examine import doctor
from .recorded import recorded_names


def main(argv: list[str] | None = None) -> int:
    """Print the report; the exit code is 0 when nothing must be mended, else 1.

    main(["--json"])                            # the same for programs
    main(["--machine", "container-64mb-shm"])   # a recorded machine
    """
    parser = argparse.ArgumentParser(prog="python -m ddp_helpers doctor", description="Is this machine ready?")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--machine", choices=recorded_names(), help="report on a recorded machine in place of this one")
    options = parser.parse_args(argv)
    report = doctor(options.machine)
    text = json.dumps(report.to_dict(), indent=2, ensure_ascii=True) if options.json else repr(report)
    encoding = sys.stdout.encoding or "utf-8"
    # A terminal that cannot show "✔" gets "?" in its place, not a traceback.
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    return report.exit_code
