"""Lesson 09's clinic: eight scripts that are broken. First only their output is to be seen, then what they have.

admit(3)  writes scripts/09_patient_3.py, runs it, and shows what a terminal would have shown
tell(3)   says what it has, beside what you predicted, and opens the script
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..command import Command
from ..environment import SUBJECT
from ..launch import Options
from ..launch import run as launch
from ..logs import shown
from ..predict import predict
from ..result import RankFailed, Run
from ..script import write_script

SECONDS = 60  # each ends by itself, in at most three
WIDTH = 100
TORCHS_PREFIX, PID = re.compile(r"^\[rank\d+\]: ?"), re.compile(r" \(pid: \d+\)")
HARNESS = Path(__file__).with_name("clinic_harness.py")


@dataclass(frozen=True)
class Patient:
    """One broken script. `cause` is the diagnosis, word for word an option of the lesson's prediction."""

    number: int
    cause: str
    evidence: str  # what in the output says so
    ranks: int = 2

    @property
    def script(self) -> str:
        return f"scripts/09_patient_{self.number}.py"

    @property
    def text(self) -> str:
        return (Path(__file__).parent / "patients" / f"patient_{self.number}.py").read_text(encoding="utf-8")


PATIENTS = {
    1: Patient(
        1,
        "Rank 3 was dealt no scans",
        "One rank has an exception of its own: ZeroDivisionError, on rank 3, in a division by len(mine). The "
        'other three printed "3 scans", which makes nine. What the others say after that, "Connection closed '
        "by peer\", is the echo, however loud. Even torchrun's Root Cause may be one of those: it is what torchrun "
        "observed first.",
        ranks=4,
    ),
    2: Patient(
        2,
        "Rank 0 waits in an all_reduce that rank 1 never calls",
        "Nobody raised anything of its own: both ranks were waiting, until their time ran out. Compare their "
        "lines: rank 0 is in dist.all_reduce, rank 1 in dist.barrier. Neither is slow: they wait for different "
        "things.",
    ),
    3: Patient(
        3,
        "Rank 1 took more and more memory, and was killed for it",
        "Rank 1 ends with -9 and no traceback: somebody else ended it, and what rank 0 says is the echo. The "
        "script had been saying why: the megabytes grow with each shift. (Here the part of the kernel was played: "
        "rank 1 was killed when autograd kept more than 20 MB for a backward. Elsewhere it is the free memory "
        "that ends. Nobody plays it in your own cell: watch the megabytes there.)",
    ),
    4: Patient(
        4,
        "Rank 0 has one batch more than rank 1",
        "Both have printed batches 0 to 2. Rank 0 waits in the loop's all_reduce once more, rank 1 has left the "
        "loop and waits in the barrier after it: 49 and 48 digits make 4 and 3 batches of at most 16.",
    ),
    5: Patient(
        5,
        "The model that rank 0 evaluates wants to talk to rank 1",
        "Rank 0's line calls the model, and no collective. Read on in its traceback: forward, _pre_forward, "
        "_sync_buffers, broadcast. DDP sends rank 0's buffers (here BatchNorm's statistics) before a forward "
        "that follows a training step, in eval() and under no_grad() too, and rank 1 is in the barrier.",
    ),
    6: Patient(
        6,
        "The last two parameters are trained by each rank alone",
        "Exit code 0, and no message. But all four norms should be alike on both ranks: the first two are, to the "
        "last digit, the last two are not. Something averages the gradients of the first layer, and not those of "
        "the second. (That the losses differ means nothing: each rank has its own samples.)",
    ),
    7: Patient(
        7,
        "The ranks add up counts of different digits",
        "Exit code 0, but some digits have more right answers than samples, and others too few. Added up they are "
        "right: nothing was lost or counted twice, it was added to the wrong digit. A dict keeps its keys in the "
        "order in which they came, and each rank met the digits in another order.",
    ),
    8: Patient(
        8,
        "Rank 1 left out a backward, five steps before the error",
        'The rank that fails is healthy, and the one at fault has printed "trained". Rank 1\'s loss is nan in step '
        "2, and it skips what follows. From then on its gradients meet those of rank 0's step before (nobody "
        "notices), and in the last step rank 0 waits for a backward that rank 1 does not have any "
        "more. What is wanted: a step whose batch holds the damaged scan is left out, as a whole, and everything "
        "else is learnt from.",
    ),
}


def admit(number: int) -> Run:
    """Write a patient's script, run it, and show what a terminal would have shown.

    >>> run = admit(1)  # doctest: +SKIP

    Raises:
        ValueError: there is no such patient.
        LaunchError: the script was edited by someone, and is left as it is.
    """
    patient = _find(number)
    path = write_script(patient.script, patient.text)
    command = Command(str(HARNESS), (str(number), str(path)), patient.ranks)
    env = {"OMP_NUM_THREADS": "1", SUBJECT: str(path)}
    options = Options(timeout=SECONDS, env=env, silent=True)
    try:
        run = launch(command, options)
    except RankFailed as failed:
        run = failed.run
    print(f"torchrun --nproc-per-node {patient.ranks} {patient.script}\n")
    print(terminal(run))
    return run


def terminal(run: Run) -> str:
    """What all ranks printed, one after the other, and what torchrun says of their ends."""
    lines = [f"[rank {rank.rank}] {line}" for rank in run.ranks for line in _printed(rank.stdout + rank.stderr)]
    return "\n".join([*lines, "", *_report(run)])


def _printed(text: str) -> Iterator[str]:
    """The lines without torch's own "[rank0]: " before each line of a traceback, and without our harness's frames."""
    ours = False
    for line in text.splitlines():
        line = TORCHS_PREFIX.sub("", shown(line))  # a kernel may ask for colours
        if line.startswith("  File "):
            ours = any(file in line for file in (str(HARNESS), "runpy"))
        elif not line.startswith("    "):
            ours = False
        if not ours:
            yield line


def _report(run: Run) -> list[str]:
    """torchrun's block of failures, less the tracebacks, which stand above."""
    if not run.exit_code:
        return ["(torchrun: exit code 0)"]
    said = (run.log_dir / "node0" / "agent.log").read_text("utf-8", "replace").splitlines()
    kept = ("Failures:", "Root Cause", "  rank ", "  exitcode ", "  <NO_")
    ends = [PID.sub("", line).rstrip() for line in said if line.startswith(kept)]
    return ["torchrun's report, in short:", *ends]


def tell(number: int) -> None:
    """Say what a patient has, beside what was predicted, and open the script.

    >>> tell(1)  # doctest: +SKIP

    Raises:
        ValueError: there is no such patient.
    """
    patient = _find(number)
    predict(f"09.p{number}", happened=patient.cause)
    print(textwrap.fill(patient.evidence, WIDTH))
    print(f"\n---- {patient.script} ----\n\n{patient.text}", end="")


def _find(number: int) -> Patient:
    if number not in PATIENTS:
        raise ValueError(f"There is no patient {number!r}: they have the numbers 1 to {len(PATIENTS)}.")
    return PATIENTS[number]
