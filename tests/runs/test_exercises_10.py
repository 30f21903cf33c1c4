"""Exercises of lesson 10: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_notebooks import Lesson
from exercise_cells import Cells

from ddp_helpers import check, launch, pictures
from ddp_helpers.exercises import slow_jobs

SCRIPTS = {"10.1": "scripts/10_throughput.py", "10.3": "scripts/10_speed_up.py"}
CELLS = Cells(Lesson("10_is_it_fast"), SCRIPTS)
checked = CELLS.checked


# ---- 10.1 -----------------------------------------------------------------------------------------------------------


def stopwatch(*changes: tuple[str, str]) -> str:
    """The lesson's stopwatch with some of its lines changed."""
    return CELLS.edited("10.1", *changes)


MEDIAN = "    slowest = torch.tensor(statistics.median(times), dtype=torch.float64)\n"
MAX = "    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)\n"
RESULT = "    return dist.get_world_size() * batch / slowest.item()\n"
WARM_UP = "    for _ in range(10):\n        step()\n"
START = "        synchronise()\n        start = time.perf_counter()\n"
STOP = "        synchronise()\n        times.append(time.perf_counter() - start)\n"
LOOP = "    for _ in range(21):\n" + START + "        step()\n" + STOP

ONE = "    import timeit\n\n    def one():\n        step()\n        synchronise()\n\n"
EVERY = (WARM_UP, ""), ("range(21)", "range(40)")  # step is timed
ONE_READING = """\
    synchronise()
    start = time.perf_counter()
    for _ in range(21):
        step()
    synchronise()
    times.append((time.perf_counter() - start) / 21)
"""

STOPWATCHES = {
    "in nanoseconds, the warm-up timed and cut off, gathered": CELLS.with_solutions(
        "10.1",
        """\
        for _ in range(9):
            step()
        synchronise()
        marks = [time.perf_counter_ns()]
        for _ in range(30):
            step()
            synchronise()
            marks.append(time.perf_counter_ns())
        mine = sorted(b - a for a, b in zip(marks, marks[1:]))[15] / 1e9
        world = dist.get_world_size()
        all_ranks = [None] * world
        dist.all_gather_object(all_ranks, mine)
        return world * batch / max(all_ranks)
        """,
    ),
    "as the lesson does it: every step timed, the first ten left out": stopwatch(
        (WARM_UP, ""),
        ("range(21)", "range(40)"),
        ("statistics.median(times)", "statistics.median(times[10:])"),
    ),
    "seven steps, timeit's clock": stopwatch(
        ("    times = []\n", "    from timeit import default_timer\n\n    times = []\n"),
        ("range(10)", "range(8)"),
        ("range(21)", "range(7)"),
        ("start = time.perf_counter()", "start = default_timer()"),
        ("time.perf_counter() - start", "default_timer() - start"),
    ),
    "timeit, step by step": stopwatch(
        ("    times = []\n", "    times = []\n" + ONE),
        (
            START + "        step()\n" + STOP,
            "        synchronise()\n        times.append(timeit.timeit(one, number=1))\n",
        ),
    ),
    "timeit.repeat, told how often": stopwatch(
        ("    times = []\n" + LOOP, ONE + "    synchronise()\n    times = timeit.repeat(one, number=1, repeat=21)\n"),
    ),
    "the slowest rank step by step": stopwatch(
        (MEDIAN, "    slowest = torch.tensor(times, dtype=torch.float64)\n"),
        (RESULT, RESULT.replace("slowest", "slowest.median()")),
    ),
}


@pytest.mark.parametrize("script", STOPWATCHES.values(), ids=STOPWATCHES)
@pytest.mark.usefixtures("notebook_folder")
def test_a_stopwatch_in_another_style_passes(script: str) -> None:
    verdict = checked("10.1", script)
    assert verdict.passed, verdict


LIES = {
    "no wait before the second reading": (
        stopwatch((STOP, STOP.replace("        synchronise()\n", ""))),
        "is not done",
    ),
    "no wait before the first reading": (
        stopwatch((START, START.replace("        synchronise()\n", ""))),
        "the first one too",
    ),
    "no warm-up": (stopwatch((WARM_UP, "")), "Perhaps the slow first steps (8 of them) are among the times you use"),
    "one reading for all, the slow ones too": (
        stopwatch((WARM_UP, ""), (LOOP, ONE_READING)),
        "is true. The slow first steps (8 of them) are among the times you use",
    ),
    "every step timed, ten left out, but a mean": (
        stopwatch(*EVERY, ("statistics.median(times)", "statistics.mean(times[10:])")),
        "Which number does not mind it?",
    ),
    "all ranks' times together": (
        stopwatch(
            *EVERY,
            (MEDIAN, "    every = [None] * dist.get_world_size()\n    dist.all_gather_object(every, times[10:])\n"),
            (MAX, ""),
            (RESULT, "    return dist.get_world_size() * batch / statistics.median(sum(every, []))\n"),
        ),
        "You mixed the ranks' times",
    ),
    "two ranks for all": (
        stopwatch(("dist.get_world_size() * batch", "2 * batch")),
        "With 1 process, 32 samples a step each: 6394 samples/s come out, 3200 is true. The number of ranks is 1 here",
    ),
    "two ranks for all, every step timed": (
        stopwatch(*EVERY, ("(times)", "(times[10:])"), ("dist.get_world_size() * batch", "2 * batch")),
        "The number of ranks is 1 here, not 2",
    ),
    "one look at a device still at work": (
        stopwatch(("    times = []\n", "    times = []\n    step()\n    time.perf_counter()\n")),
        "reads the clock once while",
    ),
    "torch's own wait": (
        stopwatch((START, START.replace("synchronise()", "torch.cuda.synchronize()"))),
        "Use the argument synchronise().",
    ),
    "all timed, none left out": (
        stopwatch((WARM_UP, ""), ("range(21)", "range(15)")),
        "leave their times out",
    ),
    "a single step": (
        stopwatch(("range(10)", "range(8)"), ("range(21)", "range(1)")),
        "one disturbed step moves it. Time each of many steps.",
    ),
    "three steps": (stopwatch(("range(10)", "range(8)"), ("range(21)", "range(3)")), "by luck"),
    "every step timed, but no maximum": (
        stopwatch((WARM_UP, ""), ("range(21)", "range(40)"), ("(times)", "(times[10:])"), (MAX, "")),
        "Each rank goes by its own watch.",
    ),
    "a mean": (stopwatch(("statistics.median(times)", "statistics.mean(times)")), "Which number does not mind it?"),
    "one reading for all": (
        stopwatch((LOOP, ONE_READING)),
        "Time each of many steps.",
    ),
    "one rank's samples": (stopwatch(("dist.get_world_size() * batch", "batch")), "That is one rank's share."),
    "each rank's own watch": (stopwatch((MAX, "")), "Each rank goes by its own watch."),
    "a mean over the ranks": (stopwatch(("ReduceOp.MAX", "ReduceOp.AVG")), "a mean over the ranks: the slowest one"),
    "the fastest rank": (stopwatch(("ReduceOp.MAX", "ReduceOp.MIN")), "That is the fastest rank."),
    "the luckiest step": (stopwatch(("statistics.median(times)", "min(times)")), "You want the usual one."),
    "a sum of speeds": (
        stopwatch(
            (MEDIAN, "    slowest = torch.tensor(batch / statistics.median(times), dtype=torch.float64)\n"),
            (MAX, "    dist.all_reduce(slowest)\n"),
            (RESULT, "    return slowest.item()\n"),
        ),
        "they wait for the slowest",
    ),
    "no clock": (stopwatch((LOOP, "    times.append(1.0)\n")), "no step was timed"),
    "nothing": (stopwatch((RESULT, "")), "gets no number"),
}


@pytest.mark.parametrize(("script", "hint"), LIES.values(), ids=LIES)
@pytest.mark.usefixtures("notebook_folder")
def test_a_stopwatch_that_lies_gets_its_own_hint(script: str, hint: str) -> None:
    verdict = checked("10.1", script)
    assert verdict.kind == "wrong" and hint.lower() in verdict.text.lower(), verdict


@pytest.mark.usefixtures("notebook_folder")
def test_ranks_that_wait_for_each_other_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's clock is ours, and the launcher's threads inside the rank must not see it."""
    monkeypatch.setattr("ddp_helpers.exercises.attempt.SECONDS", 4)
    verdict = checked("10.1", stopwatch((MAX, "    if dist.get_rank() == 0:\n    " + MAX)))
    assert verdict.kind == "wrong" and "rank 0 calls all_reduce" in verdict.text, verdict
    assert "busy in code" not in verdict.text


# ---- 10.2 -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The traces of the three jobs, in a folder of their own."""
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "scripts").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for job in "ABC":
            launch(slow_jobs.__file__, job, nproc_per_node=2, env={"OMP_NUM_THREADS": "1"}, timeout=60)
        yield folder


RIGHT = {"A": "communication", "B": "rank 0", "C": "data"}
WRONG = {
    "who waits is taken for who is slow": ({"B": "rank 1"}, r"Who waits has been ready early: .* Who is late\?"),
    "waiting is taken for communication": (
        {"B": "communication"},
        r"most is waiting \(0 ms on rank 0, \d+ ms on rank 1\)",
    ),
    "the loader is not seen": ({"C": "compute"}, r"with data \(\d+ ms on rank 0, \d+ ms on rank 1\)"),
    "small messages are not seen": (
        {"A": "compute"},
        r"Neither of the two fills the step. Which hatching fills the rest",
    ),
    "another word": ({"A": "network"}, "'network' is none of the words: data, communication"),
    "a word misspelt": ({"A": "comunication"}, "Do you mean 'communication'"),
}


def test_the_three_jobs_are_slow_for_the_reasons_they_were_made_for(recorded: Path) -> None:
    jobs = {job: pictures.timeline(f"scripts/slow_{job}_*.json", between="step") for job in RIGHT}
    assert all(rank.data_ms >= 1000 * slow_jobs.READING for rank in jobs["C"].ranks)
    assert jobs["B"].ranks[0].compute_ms > 5 * jobs["B"].ranks[1].compute_ms  # it has fifty times the samples
    assert jobs["B"].ranks[1].waiting_ms > jobs["B"].ranks[0].waiting_ms
    counts = {job: len(shown.collectives[0]) for job, shown in jobs.items()}
    assert counts["A"] > slow_jobs.NUMBERS > 10 * max(counts["B"], counts["C"])


def test_the_three_right_words_pass_and_dots_are_not_attempted(recorded: Path) -> None:
    assert RIGHT == slow_jobs.CAUSES and check("10.2", dict(RIGHT)).passed
    for missing in ("A", "B", "C"):
        assert check("10.2", {**RIGHT, missing: ...}).kind == "unattempted"
    assert check("10.2", ...).kind == "unattempted"
    assert check("10.2", {**RIGHT, "B": "Rank 0"}).passed
    assert "a dict with a word for each of A, B, C" in check("10.2", "data").text


@pytest.mark.parametrize(("change", "hint"), WRONG.values(), ids=WRONG)
def test_a_wrong_diagnosis_is_answered_with_the_traces_figures(
    recorded: Path, change: dict[str, str], hint: str
) -> None:
    verdict = check("10.2", {**RIGHT, **change})
    assert verdict.kind == "wrong" and re.search(hint, verdict.text), verdict


@pytest.mark.usefixtures("notebook_folder")
def test_without_the_traces_the_hint_says_where_they_come_from() -> None:
    assert "Run the cell that records" in check("10.2", {**RIGHT, "C": "compute"}).text


# ---- 10.3 -----------------------------------------------------------------------------------------------------------


def foretells(*lines: str) -> str:
    return CELLS.with_solutions("10.3", "\n".join(lines) + "\n")


LOST = "lost = max(0.0, two - one)"
SPEED_UPS = {
    "a sum over the ring's rounds": foretells(
        LOST,
        "step = one + sum(lost / ranks for _ in range(2 * (ranks - 1)))",
        "return one / step * ranks",
    ),
    "in numpy": foretells(
        "import numpy as np",
        "step = one + np.clip(two - one, 0, None) * (2 - 2 / ranks)",
        "return np.float64(ranks) / (step / one)",
    ),
}


@pytest.mark.parametrize("script", SPEED_UPS.values(), ids=SPEED_UPS)
@pytest.mark.usefixtures("notebook_folder")
def test_a_prediction_in_another_style_passes(script: str) -> None:
    verdict = checked("10.3", script)
    assert verdict.passed, verdict


PREDICTIONS = {
    "each rank costs as much": (
        foretells(LOST, "return ranks * one / (one + (ranks - 1) * lost)"),
        "each further rank cost as much as the second",
    ),
    "the loss grows with the ranks": (
        foretells(LOST, "return ranks * one / (one + ranks * lost)"),
        "grow with the ranks",
    ),
    "two ranks' loss for all": (foretells(LOST, "return ranks * one / (one + lost)"), "lose what two lose"),
    "half of the bytes": (
        foretells(LOST, "return ranks * one / (one + 4 * (ranks - 1) / ranks * lost)"),
        "for half of the bytes",
    ),
    "each doubling loses the same": (
        foretells("import math", "return (2 * one / two) ** math.ceil(math.log2(ranks))"),
        "That lets each doubling lose the same share",
    ),
    "the efficiency": (
        foretells(LOST, "return one / (one + 2 * (ranks - 1) / ranks * lost)"),
        "That is the efficiency",
    ),
    "strong scaling": (
        foretells(LOST, "return one / (one / ranks + 2 * (ranks - 1) / ranks * lost)"),
        "That is strong scaling",
    ),
    "noise makes it super": (
        foretells("return ranks * one / (one + 2 * (ranks - 1) / ranks * (two - one))"),
        "more than 8 times is not to be had",
    ),
    "the limit": (foretells(LOST, "return ranks * one / (one + 2 * lost)"), "the limit for very many ranks"),
    "an error": (foretells("return one / 0"), "ZeroDivisionError"),
    "wrong for eight, and an error for one": (
        foretells("return ranks * one / (2 * (ranks - 1) / ranks * two)"),
        "speed_up(one=0.1, two=0.12, ranks=8) is 3.81",
    ),
    "right, and an error for one": (
        foretells(LOST, "return ranks * one / (one + lost / (ranks / (2 * (ranks - 1))))"),
        "That was speed_up(0.1, 0.12, 1).",
    ),
    "nothing": (foretells("pass"), "returns no number"),
}


@pytest.mark.parametrize(("script", "hint"), PREDICTIONS.values(), ids=PREDICTIONS)
@pytest.mark.usefixtures("notebook_folder")
def test_a_wrong_prediction_gets_its_own_hint(script: str, hint: str) -> None:
    verdict = checked("10.3", script)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
