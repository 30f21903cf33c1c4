"""Lesson 09's clinic: each patient shows what it is said to have; right cures in more than one style pass, wrong ones
are each told why they are none."""

from __future__ import annotations

import ast
from functools import cache

import numpy as np
import pytest
from build_notebooks import ROOT, Lesson, read_source
from exercise_cells import Cells

from ddp_helpers import Run, check
from ddp_helpers.exercises import clinic_truth, lesson09
from ddp_helpers.exercises.clinic import PATIENTS, admit, tell
from ddp_helpers.predict import predict

LESSON = Lesson("09_when_it_breaks")
SCRIPTS = {f"09.{number}": f"scripts/09_mended_{number}.py" for number in PATIENTS}
CELLS = Cells(LESSON, SCRIPTS)
pytestmark = pytest.mark.usefixtures("notebook_folder")


def broken(number: int, *changes: tuple[str, str]) -> str:
    """A patient's script with some of its lines changed."""
    return replaced(PATIENTS[number].text, *changes)


def mended(number: int, *changes: tuple[str, str]) -> str:
    """The lesson's solution with some of its lines changed."""
    return replaced(solved(number), *changes)


@cache
def solved(number: int) -> str:
    return CELLS.solved(f"09.{number}")


def replaced(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


# ---- the ward -------------------------------------------------------------------------------------------------------

# What must be in the output, so that the diagnosis can be made from it alone, and how the ranks end.
SHOWS = {
    1: (["[rank 3] ZeroDivisionError: division by zero", "len(mine)", "[rank 0] RuntimeError"], {3: 1}),
    2: (["dist.all_reduce(mean)", "dist.barrier()"], {}),
    3: (["[rank 1] shift 4", "exitcode  : -9  (SIGKILL)", "[rank 0] RuntimeError"], {1: -9}),
    4: (["[rank 0] batch 2", "[rank 1] batch 2", "dist.all_reduce(hits)", "dist.barrier()"], {}),
    5: (["_sync_buffers", "model(part)", "dist.barrier()"], {}),
    6: (["exit code 0", "[rank 1] loss="], {0: 0, 1: 0}),
    7: (["exit code 0", "digit=9"], {0: 0, 1: 0}),
    8: (["[rank 1] step 2: loss nan", "[rank 1] trained", "loss.backward()"], {0: 1, 1: 0}),
}


@pytest.mark.parametrize("number", PATIENTS)
def test_a_patient_shows_what_its_diagnosis_says(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    run = admit(number)
    shown = capsys.readouterr().out
    texts, codes = SHOWS[number]
    assert not [text for text in texts if text not in shown], shown
    assert {rank: run.ranks[rank].exit_code for rank in codes} == codes
    assert not [word for word in ("batch 3", "clinic_harness", "runpy", "pid") if word in shown]
    if number in SILENT:
        assert SILENT[number](run), shown


def _norms_differ_in_the_head_only(run: Run) -> bool:
    first, second = ([*rank.stdout.split("parameters: ")[1].split()] for rank in run.ranks)
    return first[:2] == second[:2] and first[2] != second[2] and first[3] != second[3]


def _more_right_than_there_are(run: Run) -> bool:
    rows = [line for line in run.metrics if "digit" in line]
    return any(row["right"] > row["of"] for row in rows)


SILENT = {6: _norms_differ_in_the_head_only, 7: _more_right_than_there_are}


@pytest.mark.parametrize("number", PATIENTS)
def test_the_diagnosis_is_one_of_the_lessons_options(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    cell = next(c.source for c in read_source(LESSON).cells if c.source.startswith(f'predict("09.p{number}"'))
    call = ast.parse(cell).body[0].value  # type: ignore[attr-defined]
    name, question, options = (ast.literal_eval(argument) for argument in call.args)
    assert 4 <= len(options) <= 5
    predict(name, question, options, choice=PATIENTS[number].cause)
    capsys.readouterr()
    tell(number)
    shown = capsys.readouterr().out
    assert "As you predicted." in shown and PATIENTS[number].text in shown


def test_no_such_patient() -> None:
    for function in (admit, tell):
        with pytest.raises(ValueError, match="no patient 9: they have the numbers 1 to 8"):
            function(9)


# ---- right answers --------------------------------------------------------------------------------------------------

OTHERS = {
    "1, all scans are gathered": (
        1,
        broken(
            1,
            ("ink = sum(scan.mean().item() for scan in mine) / len(mine)\n", ""),
            (', their mean ink is {ink:.4f}")', '")'),
            (
                "mean = torch.tensor(ink, dtype=torch.float64)\ndist.all_reduce(mean)\nmean /= world\n",
                "parts = [None] * world\ndist.all_gather_object(parts, [scan.mean().item() for scan in mine])\n"
                "mean = torch.tensor(sum(parts, [])).double().mean()\n",
            ),
        ),
    ),
    "1, an empty rank sends 0 of 0, and the sum is divided by all": (
        1,
        broken(
            1,
            (" / len(mine)", ""),
            ("mean /= world", "mean /= len(scans)"),
        ),
    ),
    "2, reduced to rank 0 by all": (
        2,
        broken(
            2,
            ("if rank == 0:\n    mean = loss.detach().clone()\n    dist.all_reduce(mean)\n", "mean = loss.detach()\n"),
            ("    print(", "dist.reduce(mean, 0)\nif rank == 0:\n    print("),
        ),
    ),
    "2, gathered, nobody waits at the end, and it ends by itself": (
        2,
        broken(
            2,
            (
                "if rank == 0:\n    mean = loss.detach().clone()\n    dist.all_reduce(mean)\n",
                "losses = [None] * world\ndist.all_gather_object(losses, loss.item())\nif rank == 0:\n",
            ),
            ("mean.item() / world", "sum(losses) / world"),
            ("dist.barrier()\ndist.destroy_process_group()\n", "dist.destroy_process_group()\nraise SystemExit\n"),
        ),
    ),
    "3, a number is added": (
        3,
        broken(3, ("    total += cross", "    total += 1 * cross"), ('"sum")', '"sum").item()')),
    ),
    "3, detached": (3, broken(3, ('"sum")', '"sum").detach()'))),
    "4, all go round as often as the longest": (
        4,
        broken(
            4,
            ("import numpy", "import math\nimport numpy"),
            (
                "for number, batch in enumerate(mine.split(16)):",
                "rounds = math.ceil(math.ceil(97 / world) / 16)\nfor number in range(rounds):\n"
                "    batch = mine[16 * number :][:16]",
            ),
        ),
    ),
    "4, the hits are gathered": (
        4,
        broken(
            4,
            ("    dist.all_reduce(hits)\n", ""),
            (
                "dist.barrier()\n",
                "every = [None] * world\ndist.all_gather_object(every, correct)\ncorrect = sum(every)\n",
            ),
        ),
    ),
    "5, all ranks evaluate": (
        5,
        broken(
            5,
            ("if rank == 0:\n    model.eval()\n    with", "if True:\n    model.eval()\n    with"),
        ),
    ),
    "5, the network itself": (5, broken(5, ("[model(part) for", "[net(part) for"), ("    model.eval", "    net.eval"))),
    "6, a wrapper for each": (
        6,
        broken(
            6,
            (
                "model.module.append(torch.nn.Linear(32, 10))",
                "model = torch.nn.Sequential(model, DistributedDataParallel(torch.nn.Linear(32, 10)))",
            ),
        ),
    ),
    "6, the head is averaged by hand": (
        6,
        broken(
            6,
            (
                "    loss.backward()\n",
                "    loss.backward()\n    for p in model.module[2].parameters():\n"
                "        dist.all_reduce(p.grad)\n        p.grad /= world\n",
            ),
        ),
    ),
    "7, one tensor for all digits": (
        7,
        broken(
            7,
            ("{labels[number].item(): torch.tensor(0) for number in mine}", "torch.zeros(10, dtype=torch.long)"),
            ("for count in right.values():\n    dist.all_reduce(count)", "dist.all_reduce(right)"),
            ("sum(right.values())", "right.sum()"),
        ),
    ),
    "7, the digits in order, and a zero where one is missing": (
        7,
        broken(
            7,
            (
                "for count in right.values():\n    dist.all_reduce(count)",
                "for digit in range(10):\n    dist.all_reduce(right.setdefault(digit, torch.tensor(0)))",
            ),
        ),
    ),
    "8, the averaged gradient tells all": (
        8,
        broken(
            8,
            ("    if not torch.isfinite(loss):\n        continue  # nothing to be learnt from this one\n", ""),
            (
                "    optimizer.step()",
                "    if all(p.grad.isfinite().all() for p in model.parameters()):\n        optimizer.step()",
            ),
        ),
    ),
    "8, each looks at the whole batch": (
        8,
        broken(
            8,
            ("if not torch.isfinite(loss):", "if images[48 * step : 48 * (step + 1)].isnan().any():"),
        ),
    ),
}


@pytest.mark.parametrize(("number", "script"), OTHERS.values(), ids=OTHERS)
def test_a_cure_in_another_style_passes(number: int, script: str) -> None:
    verdict = CELLS.checked(f"09.{number}", script)
    assert verdict.passed, verdict


@pytest.mark.parametrize("seed", range(20))
def test_patient_7_is_tried_with_all_digits_on_two_ranks_and_one_missing_on_the_last_of_three(seed: int) -> None:
    def digits_of_each_rank(world: int) -> list[int]:
        labels = clinic_truth.digits(np.load, str(ROOT / "data/digits.npz"), seed, 7, world)["labels"]
        return [len(set(labels[share])) for share in clinic_truth.shares(clinic_truth.HELD_OUT, world)]

    assert digits_of_each_rank(2) == [10, 10] and digits_of_each_rank(3)[-1] < 10


# ---- not attempted --------------------------------------------------------------------------------------------------


def test_without_the_cell_nothing_is_attempted() -> None:
    assert check("09.1").kind == "unattempted"


def test_the_script_as_it_came_in_is_not_run_again() -> None:
    for number in PATIENTS:
        verdict = CELLS.checked(f"09.{number}", PATIENTS[number].text)
        assert verdict.kind == "wrong" and "nothing in it was changed yet" in verdict.text


def test_a_machine_too_busy_is_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped while its ranks are on their way is made again, with more time."""
    monkeypatch.setattr(lesson09, "SOON", 0.01)
    verdict = CELLS.checked("09.1", solved(1))
    assert verdict.passed, verdict


def test_a_script_that_ends_before_its_end_is_wrong() -> None:
    verdict = CELLS.checked("09.6", broken(6, ("body = ", "import os; os._exit(0)\nbody = ")))
    assert verdict.kind == "wrong" and "rank 0 did not come to the end of the script" in verdict.text


# ---- wrong cures ----------------------------------------------------------------------------------------------------

LOSS = "mean = loss.detach().clone()\ndist.all_reduce(mean)  # NEW: all ranks call it, and rank 0 prints\n"
TOTALS = "totals = torch.tensor([ink, len(mine)], dtype=torch.float64)  # NEW: what can be added up, from every rank\n"
TOTAL = '    total += cross_entropy(model(moved), labels[mine], reduction="sum")\n'
SKIP = "    if not torch.isfinite(loss):\n        continue  # nothing to be learnt from this one\n"

WRONG: dict[str, tuple[int, str, str]] = {
    "1, an empty rank votes 0": (
        1,
        broken(1, (" / len(mine)", " / max(len(mine), 1)")),
        "A rank without scans votes 0, and its vote counts.",
    ),
    "1, an empty rank leaves": (
        1,
        broken(1, ("ink = sum(", "if not len(mine):\n    raise SystemExit\nink = sum(")),
        "a rank may have none, and must take part all the same",
    ),
    "1, the error is caught": (
        1,
        broken(
            1,
            (
                "ink = sum(scan.mean().item() for scan in mine) / len(mine)\n",
                "try:\n    ink = sum(scan.mean().item() for scan in mine) / len(mine)\n"
                "except ZeroDivisionError:\n    ink = 0.0\n",
            ),
        ),
        "try/except keeps one rank going",
    ),
    "1, each rank takes all scans": (
        1,
        broken(
            1,
            ("mine = scans[rank * size : (rank + 1) * size]", "mine = scans"),
            ("dist.all_reduce(mean)\nmean /= world\n", ""),
        ),
        "no rank told another anything",
    ),
    "1, only full ranks vote": (
        1,
        mended(
            1,
            (TOTALS, "count = len(mine)\ntotals = torch.tensor([ink / max(count, 1), count > 0]).double()\n"),
        ),
        "Each rank's mean counts as one, however many scans it stands for.",
    ),
    "2, without the others": (
        2,
        broken(2, ("    dist.all_reduce(mean)\n", "")),
        "That is rank 0's own loss, divided by the number of ranks",
    ),
    "2, a barrier first": (
        2,
        broken(2, ("    dist.all_reduce(mean)\n", "    dist.barrier()\n    dist.all_reduce(mean)\n")),
        "A barrier is one more call that all must make",
    ),
    "2, a longer timeout": (
        2,
        broken(2, ("seconds=2", "minutes=10")),
        "A longer timeout changes when it fails, not whether.",
    ),
    "2, the sum": (2, mended(2, (" / world", "")), "all_reduce adds up. What makes a mean of a sum?"),
    "2, every rank prints": (
        2,
        mended(2, ("if rank == 0:\n", "if True:\n")),
        "it was printed 2 times. One rank is to print it",
    ),
    "2, two ranks": (2, mended(2, (" / world", " / 2")), "There are not always two ranks."),
    "2, everyone works on whole batches": (
        2,
        mended(2, ("[rank::world]", "")),
        "each has done the whole work",
    ),
    "3, fewer shifts": (3, broken(3, ("range(8)", "range(4)")), "Taking less is no cure: keep less of it."),
    "3, only its own share": (
        3,
        mended(3, ("dist.all_reduce(total)\n", "")),
        "That is rank 0's share alone, in a sum over all.",
    ),
    "3, the garbage is collected": (
        3,
        broken(
            3, ("import numpy", "import gc\nimport numpy"), ('    print(f"shift', '    gc.collect()\n    print(f"shift')
        ),
        "What does total hold on to, beside a number",
    ),
    "3, it is caught": (
        3,
        broken(3, (TOTAL, f"    try:\n    {TOTAL}    except MemoryError:\n        break\n")),
        "try/except keeps one rank going",
    ),
    "3, it sleeps": (
        3,
        broken(
            3,
            ("import numpy", "import time\nimport numpy"),
            ('    print(f"shift', '    time.sleep(0.01)\n    print(f"shift'),
        ),
        "A sleep only makes all of it later",
    ),
    "4, as many batches as the shortest has": (
        4,
        broken(4, ("[rank::world]", "[: 97 // world // 16 * 16 * world][rank::world]")),
        "digits were left out",
    ),
    "4, each its own": (4, mended(4, ("dist.all_reduce(correct)", "pass")), "Where do the others' come in?"),
    "4, a barrier in the loop": (
        4,
        broken(4, ("    dist.all_reduce(hits)\n", "    dist.barrier()\n    dist.all_reduce(hits)\n")),
        "A barrier is one more call that all must make",
    ),
    "4, everyone looks at all": (
        4,
        broken(4, ("[rank::world]", ""), ("    dist.all_reduce(hits)\n", "")),
        "each has done the whole work",
    ),
    "4, everyone looks at all, and they are added": (
        4,
        mended(4, ("[rank::world]", ""), (" / 97", " / (97 * world)")),
        "each has done the whole work",
    ),
    "4, rank 0 knows of two ranks": (
        4,
        broken(4, ("dist.barrier()\n", "if rank == 1:\n    dist.all_reduce(torch.tensor(0))\n")),
        "How often does each rank go round the loop?",
    ),
    "5, the barrier is gone": (
        5,
        broken(5, ("dist.barrier()\n", "")),
        "What is inside it needs nobody.",
    ),
    "5, evaluated as if trained": (
        5,
        broken(5, ("    model.eval()\n", ""), ("[model(part)", "[model.module(part)")),
        "BatchNorm took the statistics of each batch.",
    ),
    "5, never wrapped": (
        5,
        broken(5, ("DistributedDataParallel(net)", "net")),
        "What became of the wrapper?",
    ),
    "5, without BatchNorm": (
        5,
        broken(5, ("torch.nn.BatchNorm1d(32)", "torch.nn.Identity()")),
        "A network without BatchNorm needs no buffers, and is another one.",
    ),
    "5, some of it": (
        5,
        mended(5, ("images[1700:].split", "images[1700:1740].split"), ("labels[1700:]", "labels[1700:1740]")),
        "All 97 held-out digits, through rank 0's network",
    ),
    "6, the head of rank 0 for all, once": (
        6,
        broken(6, ("optimizer = ", "dist.broadcast(model.module[2].weight.data, 0)\noptimizer = ")),
        "DDP looks at a module when it is wrapped",
    ),
    "6, a barrier in each step": (
        6,
        broken(6, ("    optimizer.step()\n", "    optimizer.step()\n    dist.barrier()\n")),
        "it carries no number from one rank to another",
    ),
    "6, averaged at the end": (
        6,
        broken(
            6,
            (
                "sizes = [",
                "for p in model.module[2].parameters():\n    dist.all_reduce(p.data)\n    p.data /= world\nsizes = [",
            ),
        ),
        "averaged late, or too often, or by another factor?",
    ),
    "6, the sum of the head's gradients": (
        6,
        broken(
            6,
            (
                "    loss.backward()\n",
                "    loss.backward()\n    for p in model.module[2].parameters():\n        dist.all_reduce(p.grad)\n",
            ),
        ),
        "averaged late, or too often, or by another factor?",
    ),
    "6, the head is not trained": (
        6,
        broken(6, ("SGD(model.parameters()", "SGD(model.module[0].parameters()")),
        "the script as it came in has",
    ),
    "6, everyone works on whole batches": (6, broken(6, ("[rank::world]", "")), "each has done the whole work"),
    "6, and without the wrapper": (
        6,
        mended(6, ("[rank::world]", ""), ("DistributedDataParallel(body)", "body")),
        "each has done the whole work",
    ),
    "7, not more than there are": (
        7,
        broken(7, ("right={right[digit].item()}", "right={min(right[digit], (labels[1700:] == digit).sum())}")),
        "right ones are missing.",
    ),
    "7, each its own": (
        7,
        broken(7, ("    dist.all_reduce(count)\n", "    pass\n")),
        "Those are rank 0's own counts",
    ),
    "7, a barrier before each": (
        7,
        broken(7, ("    dist.all_reduce(count)\n", "    dist.barrier()\n    dist.all_reduce(count)\n")),
        "A barrier is one more call that all must make",
    ),
    "7, everyone looks at all": (
        7,
        broken(
            7, ("range(1700 + rank, 1797, world)", "range(1700, 1797)"), ("    dist.all_reduce(count)\n", "    0\n")
        ),
        "each has done the whole work",
    ),
    "7, sorted, and every rank must have every digit": (
        7,
        broken(7, ("in right.values():", "in [right[digit] for digit in sorted(right)]:")),
        "Must every rank know every digit?",
    ),
    "8, a barrier at the end": (
        8,
        broken(8, ('print("trained")', 'dist.barrier()\nprint("trained")')),
        "A barrier is one more call that all must make",
    ),
    "8, everyone works on whole batches": (8, broken(8, ("[rank::world]", "")), "each has done the whole work"),
    "8, nothing is skipped": (8, broken(8, (SKIP, "")), "the damaged scan was learnt from"),
    "8, zeros in place of nan, on the rank that has them": (
        8,
        broken(
            8,
            (SKIP, "    if not torch.isfinite(loss):\n        loss = 0 * model(torch.zeros(1, 64)).sum()\n"),
        ),
        "left out as a whole by all, leaves 7",
    ),
    "8, only the step is skipped": (
        8,
        broken(8, (SKIP, ""), ("    optimizer.step()", "    if loss.isfinite():\n        optimizer.step()")),
        "backward() had averaged it into the gradients of all ranks",
    ),
    "8, it ends there": (8, broken(8, ("        continue  #", "        break  #")), "backward() is a collective too"),
    "8, all end there": (
        8,
        mended(8, ("        continue  #", "        break  #")),
        "left out as a whole by all, leaves 7",
    ),
    "8, the damaged scan alone is left out": (
        8,
        broken(
            8,
            (SKIP, ""),
            ("[rank::world]\n", "[rank::world]\n    batch = batch[images[batch].isfinite().all(1)]\n"),
        ),
        "left out as a whole by all, leaves 7",
    ),
}


@pytest.mark.parametrize(("number", "script", "hint"), WRONG.values(), ids=WRONG)
def test_each_wrong_cure_is_told_why_it_is_none(number: int, script: str, hint: str) -> None:
    verdict = CELLS.checked(f"09.{number}", script)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
