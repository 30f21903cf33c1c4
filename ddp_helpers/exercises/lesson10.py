"""Exercises of lesson 10: a stopwatch that can be trusted, three profiles, a speed-up foretold.

10.1 runs the learner's stopwatch on a clock of ours, where every step's length is known. 10.2 compares with what the
jobs in slow_jobs.py do, and its hints quote the traces. 10.3 compares with the model of ddp_helpers/scaling.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import Any

from ..scaling.model import Link, Work, ring_bytes
from ..scaling.model import speed_up as model_speed_up
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .measuring_harness import BATCHES, PATTERN, USUAL, WARM_UP
from .note import left_by
from .slow_jobs import CAUSES

HARNESS, NOTE = "measuring_harness.py", "measuring.json"
WORLDS = (2, 1, 3)
ENOUGH = len(PATTERN)  # steps to time: in fewer the disturbed one may be missing, or count for much
CLOSE = 0.02  # of a throughput; the mistakes are further off
WORDS = ("data", "communication", "compute", "rank 0", "rank 1")

Note = dict[str, Any]


# ---- 10.1: a stopwatch ----------------------------------------------------------------------------------------------


def trusted(attempt: Attempt) -> str | None:
    """On every rank the samples a second of all ranks: of the usual step, on the slowest rank."""
    for nproc in WORLDS:
        run = attempt.run_through(HARNESS, "throughput", nproc=nproc)
        try:
            attempt.succeeded(run)
        except Wrong as wrong:
            if re.search("CUDA|NVIDIA", wrong.failure):
                raise Wrong(f"{wrong}\nThe device is one of ours. Use the argument synchronise().") from None
            raise
        notes = left_by(run, NOTE)
        for batch, *cases in zip(BATCHES, *(notes[rank]["cases"] for rank in sorted(notes)), strict=True):
            hint = _judge_stopwatch(batch, cases)
            if hint:
                return f"{crowd(run)} {hint}"
    return None


def _judge_stopwatch(batch: int, cases: list[Note]) -> str | None:
    world, values = len(cases), [case["value"] for case in cases]
    if None in values:
        return f"rank {values.index(None)} gets no number from throughput()."
    if not any(case["spans"] for case in cases):
        return "no step was timed: the clock is read before and after steps, and on every rank."
    early = next((rank for rank, case in enumerate(cases) if case["busy"]), None)
    if early is not None:
        count = cases[early]["busy"]
        often = "once" if count == 1 else f"{count} times"
        return (
            f"rank {early} reads the clock {often} while the device is still at work: a step "
            "that was started is not done. Synchronise before each reading, the first one too."
        )
    warm = [[seconds for seconds, before in case["spans"] if before >= WARM_UP] for case in cases]
    timed, truth = min(map(len, warm)), world * batch / max(USUAL[:world])
    if any(abs(value / truth - 1) >= CLOSE for value in values):
        cold = min(case["warm_up"] for case in cases)
        return _why(batch, warm, values, truth, cold)
    if timed < ENOUGH:
        return (
            f"that is right, by luck: the number of readings after the slow steps is {timed}. One step in "
            f"{ENOUGH} is disturbed, and who times few may meet it. Time each of {ENOUGH} steps or more."
        )
    return None


def _why(batch: int, spans: list[list[float]], values: Sequence[float], truth: float, cold: int) -> str:
    shown = ", ".join(f"{value:.0f}" for value in values)
    said = f"{batch} samples a step each: {shown} samples/s come out, {truth:.0f} is true. "
    if all(spans):
        hint = _known_mistake(batch, spans, values)
        if hint:
            return said + hint
    if cold < WARM_UP:
        return (
            f"{said}{'Perhaps the' if all(spans) else 'The'} slow first steps ({WARM_UP} of them) are among the times "
            "you use. Let them pass first, or leave their times out."
        )
    if len(spans[0]) == 1:
        return f"{said}All lies between two readings, and one disturbed step moves it. Time each of many steps."
    return f"{said}The usual step takes {max(USUAL[: len(spans)]) * 1e3:.0f} ms on the slowest rank."


def _known_mistake(batch: int, spans: list[list[float]], values: Sequence[float]) -> str | None:
    """What somebody did who gets these values from these spans, one list a rank."""
    if len(spans[0]) == 1:
        return None
    for candidate, text in _guesses(batch, spans):
        if all(abs(a / b - 1) < CLOSE / 4 for a, b in zip(values, candidate, strict=True)):
            return text
    return None


def _guesses(batch: int, spans: list[list[float]]) -> Iterator[tuple[Sequence[float], str]]:
    """Typical mistakes: what each would make of these spans on every rank, and what to say to it."""
    world, medians = len(spans), [statistics.median(each) for each in spans]
    per_rank = [batch / median for median in medians]
    faster = [world * each for each in per_rank]
    one_for_all = [
        (batch / max(medians), "That is one rank's share. How many samples does a step of all ranks have?"),
        (2 * batch / max(medians), f"The number of ranks is {world} here, not 2: ask dist.get_world_size()."),
        (world * batch / min(map(min, spans)), "That is the luckiest step. You want the usual one."),
        (world * batch / max(map(min, spans)), "That is the luckiest step. You want the usual one."),
        (sum(per_rank), "A sum of the ranks' speeds: but they wait for the slowest."),
        (world * batch / statistics.mean(medians), "A mean over the ranks: the slowest one sets the pace."),
        (max(faster), "That is the fastest rank. The others wait for whom?"),
    ]
    text = "Each rank goes by its own watch. The job goes at the pace of the slowest rank, and all should say so."
    yield faster, text
    yield per_rank, "That is each rank for itself. How fast are all of them together?"
    yield from (([value] * world, text) for value, text in one_for_all)
    for left_out in range(max(1, min(map(len, spans)) - ENOUGH + 1)):  # more than the slow ones, it may be
        kept = [each[left_out:] for each in spans]
        mean, mixed = max(map(statistics.mean, kept)), statistics.median(chain(*kept))
        text = "A mean counts a disturbed step twelvefold. Which number does not mind it?"
        yield [world * batch / mean] * world, text
        if world > 1:
            yield [world * batch / mixed] * world, "You mixed the ranks' times: the slowest rank's median counts."


# ---- 10.2: three profiles -------------------------------------------------------------------------------------------


def diagnosed(answer: object) -> str | None:
    """Each of the three jobs is slow for the reason that is written in slow_jobs.py."""
    if not isinstance(answer, dict) or set(answer) != set(CAUSES):
        return f"The answer is a dict with a word for each of {', '.join(CAUSES)}."
    for job, cause in CAUSES.items():
        word = str(answer[job]).strip().casefold()
        if word not in WORDS:
            near = "".join(f" Do you mean {one!r}?" for one in get_close_matches(word, WORDS, n=1))
            return f"{answer[job]!r} is none of the words: {', '.join(WORDS)}.{near}"
        if word != cause:
            return f"{job} is not slow because of {word!r}. {_evidence(job, cause, word)}"
    return None


def _evidence(job: str, cause: str, word: str) -> str:
    from ..pictures import timeline

    try:
        shares = timeline(f"scripts/slow_{job}_*.json", between="step").ranks
    except (ValueError, OSError):
        return "Run the cell that records the three jobs, and look at their pictures."
    figures = {
        name: ", ".join(f"{getattr(one, name):.0f} ms on rank {rank}" for rank, one in enumerate(shares))
        for name in ("compute_ms", "communication_ms", "waiting_ms", "data_ms", "step_ms")
    }
    if cause.startswith("rank"):
        if word.startswith("rank"):
            return f"Who waits has been ready early: it waits {figures['waiting_ms']}. Who is late?"
        return (
            f"Of the communication ({figures['communication_ms']}) most is waiting ({figures['waiting_ms']}): "
            "nothing travels yet. What does the other rank do in that time?"
        )
    if cause == "data":
        return f"Compare the step ({figures['step_ms']}) with data ({figures['data_ms']}), before anything is computed."
    return (
        f"Compute takes {figures['compute_ms']}, data {figures['data_ms']}, of a step of {figures['step_ms']}. "
        "Neither of the two fills the step. Which hatching fills the rest, and in how many pieces?"
    )


# ---- 10.3: a speed-up foretold --------------------------------------------------------------------------------------


def foretold(attempt: Attempt) -> str | None:
    """For cases that it does not know the speed-up of the model: a ring, without latency and overlap."""
    run = attempt.run_through(HARNESS, "speed_up", nproc=1)
    cases = left_by(run, NOTE).get(0, {}).get("cases", [])
    for case in cases:
        if "value" in case:  # the last one may have ended in an error: what came before it counts first
            one, two, ranks = case["case"]
            hint = _judge_speed_up(one, two, ranks, case["value"])
            if hint:
                return hint
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        where = f"\nThat was speed_up({', '.join(map(str, cases[-1]['case']))})." if cases else ""
        raise Wrong(f"{wrong}{where}", wrong.failure) from None
    return None


def ring_speed_up(one: float, two: float, ranks: int) -> float:
    """The truth: what two ranks lose is bytes/bandwidth, since 2(N-1)/N is 1 for them."""
    lost = max(two - one, 1e-15)
    return model_speed_up(Work(one, 0.0, size=1.0), Link(0.0, 1 / lost), ranks, 1)


def _judge_speed_up(one: float, two: float, ranks: int, value: float | None) -> str | None:
    asked, truth = f"speed_up(one={one}, two={two}, ranks={ranks})", ring_speed_up(one, two, ranks)
    if value is None:
        return f"{asked} returns no number."
    if abs(value / truth - 1) < 1e-6:
        return None
    said = f"{asked} is {value:.4g}, and the ring makes it {truth:.4g}. "
    if ranks == 1:
        return f"{said}One process is as fast as one process."
    if two < one:
        return f"{said}Here two ranks were even faster than one, by noise: more than {ranks} times is not to be had."
    for candidate, text in _mistakes(one, two, ranks):
        if abs(value / candidate - 1) < 1e-6:
            return said + text
    return f"{said}What do two ranks lose in a step, and how many times as much do {ranks}?"


def _mistakes(one: float, two: float, ranks: int) -> list[tuple[float, str]]:
    lost = two - one
    with_loss: Callable[[float], float] = lambda factor: ranks * one / (one + factor * lost)  # noqa: E731
    doublings = (ranks - 1).bit_length()
    return [
        (with_loss(ranks - 1), "That lets each further rank cost as much as the second. A ring's pieces get smaller."),
        (with_loss(ranks), "That lets the loss grow with the ranks. In a ring each rank sends 2(N-1)/N of the bytes."),
        (with_loss(1), "That lets any number of ranks lose what two lose. With two 2(N-1)/N is 1. What is it with 8?"),
        (with_loss(2 * ring_bytes(ranks)), "That takes what two ranks lose for half of the bytes. N = 2: 2(N-1)/N is?"),
        (with_loss(2), "That is the limit for very many ranks. The factor 2(N-1)/N is a little less."),
        (2 * one / two * ranks / 2, "That lets any number of ranks lose what two lose."),
        ((2 * one / two) ** doublings, "That lets each doubling lose the same share. The ring's bytes hardly grow."),
        (truth_share(one, two, ranks), "That is the efficiency, a share of the ideal. The speed-up counts all ranks."),
        (1 / truth_share(one, two, ranks), "That is how much longer a step takes. How many samples does it have now?"),
        (one / (one / ranks + ring_bytes(ranks) * lost), "That is strong scaling. Here each rank keeps its batch."),
    ]  # fmt: skip


def truth_share(one: float, two: float, ranks: int) -> float:
    return ring_speed_up(one, two, ranks) / ranks


CHECKS: dict[str, Any] = {
    "10.1": ScriptExercise(
        "scripts/10_throughput.py",
        trusted,
        "with 1 to 3 processes, on a clock where every step's length is known, with slow first steps, a disturbed one "
        "in seven, and a slow rank",
    ),
    "10.2": diagnosed,
    "10.3": ScriptExercise("scripts/10_speed_up.py", foretold, "for seven pairs of measurements"),
}
