"""Run what only a GPU can show, in under 8 minutes, and write it to a CSV with the hardware's name.

    python tools/gpu_check.py                        everything; results in gpu_check.csv
    python tools/gpu_check.py --only doctor refusal  these checks
    python tools/gpu_check.py --cpu                  a rehearsal without a GPU, in tiny sizes: does every check run?
    python tools/gpu_check.py --list                 the checks, and what each one asks

What it needs: Linux, an NVIDIA GPU, this repository (the lessons' sources are part of it), and a Python >= 3.10 with a
torch >= 2.9 that was built for CUDA, and NumPy. psutil and nvidia-ml-py, and matplotlib for one picture: a check that
misses one of them says so in its line, and the others go on. No internet, no data set, no torchvision, no installation
of this repository; nothing outside --out, its folder of traces, and a temporary folder is written.

Each check runs in a process of its own with a time limit. What it has found when it fails stays, with a line for the
error. Several GPUs are used where there are some. Nothing else should run on the GPUs: the figures would be wrong.

The exit code: 0 when everything ran and every claim of the lessons held, 1 when not, 2 without a GPU. A line's status
is measured, holds, does not hold, skipped, error or time limit; in a rehearsal it is rehearsal, and its figures say
nothing of any GPU.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from gpu_checks import hardware, isolate
from gpu_checks.catalogue import BY_NAME, CHECKS, Check
from gpu_checks.hardware import Hardware
from gpu_checks.lab import BAD, ROOT, SKIPPED, Lab, Row
from gpu_checks.scripts.die_with_parent import die_with_parent

# The first eight are those of data/published_figures.csv, with `check` for its `topic`.
COLUMNS = ("check", "hardware", "workload", "setting", "value", "unit", "source", "note")
COLUMNS += ("status", "low", "high", "driver", "torch")
BUDGET = 460.0  # s, of all checks together


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="rehearse without a GPU, in tiny sizes")
    parser.add_argument("--only", nargs="+", metavar="CHECK", choices=sorted(BY_NAME), help="run these checks")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.csv"), metavar="CSV")
    parser.add_argument(
        "--budget", type=float, default=BUDGET, metavar="S", help="seconds for all (default %(default)g)"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and end")
    parser.add_argument("--child", nargs=3, metavar=("CHECK", "FOLDER", "KEEP"), help=argparse.SUPPRESS)
    parser.add_argument("--gpus", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.list:
        print(*(f"{check.name:17} {check.asks}" for check in CHECKS), sep="\n")
        return 0
    if options.child:
        return child(*options.child, options.cpu, options.gpus)
    return Job(options).run([check for check in CHECKS if not options.only or check.name in options.only])


class Job:
    """All checks, one after another, and the CSV, which is whole after each of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.cpu, self.out = options.cpu, options.out.resolve()
        self.keep = self.out.with_name(f"{self.out.stem}_files")
        self.deadline = time.monotonic() + options.budget
        self.rows: list[Row] = []
        self.env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""} if self.cpu else dict(os.environ)

    def run(self, checks: list[Check]) -> int:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="gpu_check_") as folder:
            self.folder = Path(folder)
            machine = self._look()
            if machine is None:
                return 2
            print(f"{machine.name}\ndriver {machine.driver or '-'}, torch {machine.torch}\n", flush=True)
            for check in checks:
                start = time.monotonic()
                rows = self._run(check, machine)
                self.rows += rows
                write_csv(self.out, self.rows, machine)
                print(summary(check, rows, time.monotonic() - start), flush=True)
        print(f"\n{len(self.rows)} lines in {self.out}")
        return int(any(row.status in BAD for row in self.rows))

    def _look(self) -> Hardware | None:
        """The machine; None, and the reason is printed, where there is nothing to measure."""
        try:
            subprocess.run(self._command("hardware"), env=self.env, timeout=120, check=True)
        except subprocess.SubprocessError as error:
            print(f"This Python cannot tell what is here ({error}). Has it a torch that works?", file=sys.stderr)
            return None
        machine = Hardware.read((self.folder / "hardware.json").read_text(encoding="utf-8"))
        if not machine.gpus and not self.cpu:
            print("torch sees no GPU here: nothing was measured. (--cpu rehearses without one.)", file=sys.stderr)
            return None
        return machine

    def _command(self, name: str, gpus: int = 0) -> list[str]:
        command = [sys.executable, str(Path(__file__).resolve())]
        command += ["--child", name, str(self.folder), str(self.keep), "--gpus", str(gpus)]
        return [*command, "--cpu"] if self.cpu else command

    def _run(self, check: Check, machine: Hardware) -> list[Row]:
        if not self.cpu and machine.gpus < check.gpus:
            return [Row(check.name, "", "not run", "", "", SKIPPED, note=f"needs {check.gpus} GPUs")]
        left = self.deadline - time.monotonic()
        lines = self.folder / f"{check.name}.jsonl"
        command = self._command(check.name, machine.gpus)
        return isolate.run(check.name, command, lines, min(check.limit, left), self.env, check.limit).rows


def child(name: str, folder: str, keep: str, cpu: bool, gpus: int) -> int:
    """One check, in its own process. (Its exception ends the process; isolate.py makes a row of that.)"""
    if name == "hardware":
        hardware.write(Path(folder) / "hardware.json", cpu)
        return 0
    die_with_parent()
    scratch = Path(folder) / name
    (scratch / "notebooks").mkdir(parents=True)
    os.chdir(scratch / "notebooks")
    sys.path.insert(0, str(ROOT))  # ddp_helpers need not be installed
    lines = Path(folder) / f"{name}.jsonl"
    BY_NAME[name].run(Lab(name, not cpu, 2 if cpu else gpus, scratch, lines, Path(keep)))
    return 0


def write_csv(path: Path, rows: list[Row], machine: Hardware) -> None:
    """Replace the file: a reader finds the old lines or the new ones."""
    shared = {"hardware": machine.name, "driver": machine.driver, "torch": machine.torch}
    shared["source"] = f"tools/gpu_check.py {datetime.date.today()}"
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows({**asdict(row), **shared} for row in rows)
    os.replace(new, path)


def summary(check: Check, rows: list[Row], seconds: float) -> str:
    """What to print of one check: how many rows of each kind, and each bad one in full."""
    count = Counter(row.status for row in rows)
    lines = [f"{check.name:17} {seconds:5.1f} s  " + ", ".join(f"{number} {what}" for what, number in count.items())]
    lines += [f"    {row.status}: {row.workload} {row.setting} {row.note}" for row in rows if row.status in BAD]
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the running check is ended, too
    sys.exit(main(sys.argv[1:]))
