"""Starts the daemons that it is told on standard input; when that is closed, ends whatever lives below it.

Slurm's jobs leave the daemons that started them. So that none outlives the tests, however those end, this process is
the one that orphans come to (Linux), and it ends with whoever holds the other end of the pipe.
"""

from __future__ import annotations

import json
import subprocess
import sys

from ddp_helpers.agent import become_subreaper, end_children


def main() -> None:
    become_subreaper()
    try:
        for line in sys.stdin:
            log, *command = json.loads(line)
            with open(log, "wb") as output:
                daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            print(daemon.pid, flush=True)
    finally:
        end_children()


if __name__ == "__main__":
    main()
