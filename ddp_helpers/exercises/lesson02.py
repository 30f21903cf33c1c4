"""Exercises of lesson 02: a mean over unequal shards, a ring all-reduce, one decision for all.

The learner's function is called on data made here, on 1 to 4 ranks, and compared with what one process computes.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from ..result import Run
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .note import left_by

HARNESS = "collective_harness.py"
PATIENCE = 4.0  # seconds until a rank counts as stuck: on these small tensors a collective takes milliseconds
WORLDS = (2, 3, 4, 1)
Seen = dict[str, Any]  # what a rank's call did: returned, left, messages


class _Standstill(Wrong):
    """Ranks that wait for ever, in the function's `call` (-1: in the script itself); `gone`: who does not wait."""

    def __init__(self, hint: str, question: str, call: int, gone: list[int]) -> None:
        super().__init__(f"{hint} {question}")
        self.hint, self.call, self.gone = hint, call, gone


def _called(attempt: Attempt, function: str, cases: list[list[list[Any]]]) -> tuple[Run, list[list[Seen]]]:
    """Call the function on each case, one list of arguments a rank; what was seen, case by case and rank by rank."""
    world = len(cases[0])
    run = attempt.run_through(HARNESS, function, json.dumps(cases), str(PATIENCE), nproc=world)
    stuck = left_by(run, "stuck.json")
    if stuck:
        raise _standstill(attempt, run, stuck)
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        if not wrong.failure.startswith("SIGABRT"):
            raise
        raise Wrong(
            f"{wrong}\ngloo aborts when ranks bring tensors of unequal length or dtype.", wrong.failure
        ) from None
    seen = left_by(run, "seen.json")
    return run, [[seen[rank]["cases"][case] for rank in range(world)] for case in range(len(cases))]


def _standstill(attempt: Attempt, run: Run, stuck: dict[int, Seen]) -> _Standstill:
    places = {rank: (_spoken(note["name"]), _cell_line(attempt, note["line"])) for rank, note in stuck.items()}
    stand = "; ".join(f"rank {rank} stands in {name}{line}" for rank, (name, line) in places.items())
    hint = f"{crowd(run)} nothing moves any more: {stand}."
    gone = [rank.rank for rank in run.ranks if rank.rank not in stuck]
    names = {name for name, _ in places.values()}
    if gone:
        hint += f" {_ranks(gone).capitalize()} {'is' if len(gone) == 1 else 'are'} not there."
        question = "A collective that not all ranks call never ends. Which rank passes it by?"
    elif names == {"send"}:
        question = "Each waits until its neighbour asks for the message. Who gets to recv?"
    elif names == {"recv"}:
        question = "All wait to be given something. Who has sent anything?"
    else:
        question = "They do not wait for the same thing. Does every rank make the same call, with the same arguments?"
    return _Standstill(hint, question, min(note["phase"] for note in stuck.values()) - 1, gone)


def _cell_line(attempt: Attempt, line: int | None) -> str:
    if line is None:
        return ""
    text = Path(attempt.script).read_text(encoding="utf-8").splitlines()[line - 1].strip()
    return f" (cell line {line + 1}: {text})"


SPOKEN = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "recv_any_source": "recv",
}


def _spoken(name: str) -> str:
    return SPOKEN.get(name, name)


def _ranks(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    listed = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"rank{'s' if len(words) > 1 else ''} {listed}"


# ---- 02.1: the mean of all ------------------------------------------------------------------------------------------


def global_mean(attempt: Attempt) -> str | None:
    """Every rank returns the mean of all scores, also when a rank has none."""
    for world in WORLDS:
        dice = random.Random(world)
        counts = [[2 * rank + 1 for rank in range(world)]]
        if world > 1:
            counts += [[*range(1, world), 0], [0, *range(3, world + 2)]]
        shards = [[[dice.randint(1, 400) / 8 for _ in range(count)] for count in case] for case in counts]
        run, seen = _means(attempt, shards)
        for case, ranks in zip(shards, seen, strict=True):
            hint = _judge_mean(case, [rank["returned"] for rank in ranks])
            if hint:
                return f"{crowd(run)} with {_listed(len(shard) for shard in case)} scores, {hint}"
    return None


def _means(attempt: Attempt, shards: list[list[list[float]]]) -> tuple[Run, list[list[Seen]]]:
    try:
        return _called(attempt, "global_mean", [[[shard] for shard in case] for case in shards])
    except _Standstill as still:
        empty = [rank for rank, shard in enumerate(shards[still.call]) if not shard]
        if still.call >= 0 and still.gone == empty:
            raise Wrong(f"{still.hint} It has no scores. Does that excuse it from the call?") from None
        raise
    except Wrong as wrong:
        if wrong.failure.startswith("SIGABRT"):
            raise Wrong(f"{wrong} Which dtype has torch.tensor(sum([]))?") from None
        if wrong.failure.startswith(("ZeroDivisionError", "StatisticsError")):
            raise Wrong(f"{wrong}\nA rank may have no scores. By which number may it divide?") from None
        raise


def _judge_mean(shards: list[list[float]], means: list[Any]) -> str | None:
    scores = [score for shard in shards for score in shard]
    truth = fmean(scores)
    wrong = [rank for rank, mean in enumerate(means) if not _close(mean, truth)]
    if not wrong:
        return None
    rank, mean = wrong[0], means[wrong[0]]
    got = f"rank {rank} returned {mean:.4g}" if isinstance(mean, float) else f"rank {rank} returned {mean}"
    if len(wrong) < len(means) and mean is None:
        return f"{got}, though {_ranks([r for r in range(len(means)) if r not in wrong])} knows the mean. All need it."
    if isinstance(mean, float) and math.isnan(mean):
        return f"{got}. What is the mean of no scores, and what becomes of a sum that it is added to?"
    if not isinstance(mean, int | float):
        return f"{got}. A number was asked for."
    return f"{got}, and the mean of all is {truth:.4g}. {_guess_mean(shards, means, rank)}"


def _guess_mean(shards: list[list[float]], means: list[Any], rank: int) -> str:
    """What a wrong mean may be, told by its value."""
    world, mean, own = len(shards), means[rank], shards[rank]
    total, count = sum(map(sum, shards)), sum(map(len, shards))
    local = [fmean(shard) if shard else 0.0 for shard in shards]
    right = next((r for r, value in enumerate(means) if _close(value, total / count)), None)
    if right is not None:
        return f"Rank {right} has it. Which collective leaves the result on every rank, and not on one?"
    if own and _close(mean, fmean(own)):
        return f"That is the mean of rank {rank}'s own scores: has anybody asked the others?"
    if _close(mean, fmean(local)) or _close(mean, fmean(fmean(shard) for shard in shards if shard)):
        big, small = max(range(world), key=lambda r: len(shards[r])), min(range(world), key=lambda r: len(shards[r]))
        return (
            f"That is the mean of the ranks' means: rank {big}'s {len(shards[big])} scores weigh as much in it as "
            f"rank {small}'s {len(shards[small])}. What must weigh alike?"
        )
    if _close(mean, total):
        return "That is the sum of all scores. How many are there in all?"
    if own and _close(mean, total / (len(own) * world)):
        return f"That is the sum of all, divided by {world} times rank {rank}'s own count. Do all have as many?"
    if own and _close(mean, total / len(own)):
        return f"That is the sum of all, divided by rank {rank}'s own count. Who counts the others' scores?"
    if _close(mean, total / world):
        return f"That is the sum of all, divided by the number of ranks. {count} scores went into it."
    wholes = [sum(int(score) for shard in shards for score in shard), sum(int(sum(shard)) for shard in shards)]
    if mean == math.floor(total / count) or any(mean == n // count or _close(mean, n / count) for n in wholes):
        return "Only whole numbers seem to have been added up. Which dtype do the sums have?"
    return f"All scores sum up to {total:g}, and there are {count}: on this rank, which of the two is another?"


def _close(value: Any, truth: float) -> bool:
    return isinstance(value, int | float) and math.isclose(value, truth, rel_tol=1e-4, abs_tol=1e-6)


def _listed(items: Any) -> str:
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# ---- 02.2: ring all-reduce ------------------------------------------------------------------------------------------

SHAPES: tuple[tuple[tuple[int, ...], str], ...] = (
    ((12,), "float32"),
    ((7,), "float32"),
    ((2, 5), "float64"),
    ((1,), "float32"),
    ((1003,), "int64"),
)
ITEM = {"float32": 4, "float64": 8, "int64": 8}


def ring_all_reduce(attempt: Attempt) -> str | None:
    """The sum on every rank, by messages to one neighbour, with no more than 2 (N - 1)/N of the tensor from each."""
    for world in WORLDS:
        dice = random.Random(10 + world)
        cases: list[list[list[Any]]] = []
        for shape, dtype in SHAPES:
            values = [[dice.randint(-99, 99) for _ in range(math.prod(shape))] for _ in range(world)]
            cases.append([[{"values": row, "dtype": dtype, "shape": shape}] for row in values])
        run, seen = _rung(attempt, cases)
        for judge in (_judge_calls, _judge_sums, _judge_ring):
            for (shape, dtype), case, ranks in zip(SHAPES, cases, seen, strict=True):
                tensors: list[list[int]] = [arguments[0]["values"] for arguments in case]
                hint = judge(tensors, ranks, ITEM[dtype])
                if hint:
                    return f"{crowd(run)} on a tensor of shape {shape}, {hint}"
    return None


def _rung(attempt: Attempt, cases: list[list[list[Any]]]) -> tuple[Run, list[list[Seen]]]:
    try:
        return _called(attempt, "ring_all_reduce", cases)
    except Wrong as wrong:
        cuts = re.search(r"\b(chunk|split)\(", Path(attempt.script).read_text(encoding="utf-8"))
        if wrong.failure.startswith("IndexError") and cuts:
            fewer = f"`{cuts[1]}` may return fewer pieces than there are ranks."
            raise Wrong(f"{wrong}\n{fewer} Which function always returns as many as it is told?") from None
        raise


def _judge_calls(tensors: list[list[int]], ranks: list[Seen], item: int) -> str | None:
    for rank, seen in enumerate(ranks):
        for message in seen["messages"]:
            if message["name"] not in ("send", "recv", "recv_any_source", "barrier"):
                at = f", in cell line {message['line'] + 1}" if message["line"] else ""
                name = _spoken(message["name"])
                return f"rank {rank} called {name}{at}. Here you are the one who writes it, with send and recv."
    return None


def _judge_sums(tensors: list[list[int]], ranks: list[Seen], item: int) -> str | None:
    sums = [sum(column) for column in zip(*tensors, strict=True)]
    right = [[value == total for value, total in zip(seen["left"], sums, strict=True)] for seen in ranks]
    if all(map(all, right)):
        return None
    rank, index = next((r, i) for r, row in enumerate(right) for i, good in enumerate(row) if not good)
    got = f"element {index} on rank {rank} is {ranks[rank]['left'][index]:g}, and the sum is {sums[index]}."
    count, world = len(sums), len(ranks)
    if ranks[rank]["left"][index] - sums[index] in _parts([row[index] for row in tensors]):
        return f"{got} That is the sum, with a part of it once more. Are finished chunks added, or copied?"
    if all(seen["left"] == row for seen, row in zip(ranks, tensors, strict=True)):
        return f"{got} No rank's tensor has changed. Is the sum written into `tensor` itself?"
    if all(any(row[i] for row in right) for i in range(count)):
        holder = next(r for r in range(world) if right[r][index])
        return f"{got} Rank {holder} has it. How do finished chunks get to the ranks that lack them?"
    if count % world and all(row[i] for row in right for i in range(count // world * world)):
        return f"{got} {count} = {count // world} × {world} + {count % world}: who takes care of the rest?"
    return f"{got} {_guess_sum(tensors, ranks[rank]['left'][index], index)}"


def _parts(column: list[int]) -> set[int]:
    """What some of the ranks' values may sum up to."""
    sizes = range(1, len(column) + 1)
    return {sum(chosen) for size in sizes for chosen in combinations(column, size)} - {0}


def _guess_sum(tensors: list[list[int]], got: float, index: int) -> str:
    column = [row[index] for row in tensors]
    parts = [rank for rank, value in enumerate(column) if value == got]
    if parts:
        return f"That is what rank {parts[0]} held at first: nothing was added to it."
    pairs = [(a, b) for a in range(len(column)) for b in range(a) if column[a] + column[b] == got]
    if pairs:
        a, b = sorted(pairs[0])
        return f"That is rank {a}'s and rank {b}'s alone: after how many steps has everybody's been added?"
    return "Print which chunk each rank sends in each step, and what it holds after it."


def _judge_ring(tensors: list[list[int]], ranks: list[Seen], item: int) -> str | None:
    world, count = len(ranks), len(tensors[0])
    chunk = -(-count // world) * item
    most = 2 * (world - 1) * chunk
    for rank, seen in enumerate(ranks):
        sends = [message for message in seen["messages"] if message["name"] == "send"]
        sent, peers = sum(message["bytes"] for message in sends), sorted({message["peer"] for message in sends})
        if sent > most:
            return (
                f"the sums are right, but rank {rank} sent {sent} bytes, {sent / (count * item):.2f} times the tensor. "
                f"2 (N - 1)/N is {2 * (world - 1) / world:.2f}. "
                + _guess_excess(max(message["bytes"] for message in sends), chunk, count * item)
            )
        if len(peers) > 1:
            return f"the sums are right, but rank {rank} sent to {_ranks(peers)}. In a ring it sends to one neighbour."
        if seen["returned"] is None:
            return f"the sums are right, but rank {rank} returned None. How many bytes has it sent?"
        if seen["returned"] != sent:
            guess = _guess_bytes(seen["returned"], sent, item)
            return f"the sums are right, but rank {rank} returned {seen['returned']}, and {sent} bytes left it. {guess}"
    return None


def _guess_excess(largest: int, chunk: int, whole: int) -> str:
    if chunk < largest < whole:
        return f"The largest message had {largest} bytes. How large need the largest chunk be?"
    return "Does more than one chunk travel in a step?"


def _guess_bytes(returned: Any, sent: int, item: int) -> str:
    if returned == sent // item:
        return "That is the number of elements."
    if returned == sent * 4 // item:
        return f"An element of this tensor has {item} bytes, not 4."
    return "Chunks need not be of one length: count each as it goes."


# ---- 02.3: everyone gets rank 0's decision --------------------------------------------------------------------------


def stop_together(attempt: Attempt) -> str | None:
    """All ranks train as many epochs as rank 0 decides."""
    for world in WORLDS:
        dice = random.Random(20 + world)
        falling, flat = [9, 8, 7, 6, 5, 4, 3, 2], [9, 8, 8, 8, 8, 8, 8, 8]
        cases = [([flat] + [falling] * (world - 1), 3), ([falling] + [flat] * (world - 1), 2)]
        cases += [([[dice.randint(0, 30) for _ in range(9)] for _ in range(world)], patience) for patience in (1, 2, 3)]
        run, seen = _trained(attempt, [[[losses, patience] for losses in shards] for shards, patience in cases])
        alone = [[epochs_alone(row, patience) for row in shards] for shards, patience in cases]
        hint = _judge_stop(alone, seen)
        if hint:
            return f"{crowd(run)} {hint}"
    return None


def _trained(attempt: Attempt, arguments: list[list[list[Any]]]) -> tuple[Run, list[list[Seen]]]:
    try:
        return _called(attempt, "train", arguments)
    except _Standstill as still:
        if 0 in still.gone:
            raise Wrong(f"{still.hint} It has stopped. Did it say so before, and did all heed it?") from None
        if still.gone:
            raise Wrong(f"{still.hint} Rank 0 speaks. Who has to listen, and in which epochs?") from None
        raise


def epochs_alone(losses: list[int], patience: int) -> int:
    """How many epochs a rank trains that decides for itself: `patience` after the best one, if there are as many."""
    for epoch in range(len(losses)):
        best = losses.index(min(losses[: epoch + 1]))
        if epoch - best >= patience:
            return epoch + 1
    return len(losses)


def _judge_stop(alone: list[list[int]], seen: list[list[Seen]]) -> str | None:
    """`alone`: what each rank would do by itself, case by case."""
    epochs = [[rank["returned"] for rank in ranks] for ranks in seen]
    case = next((n for n, counts in enumerate(epochs) if any(count != alone[n][0] for count in counts)), None)
    if case is None:
        return None
    counts, wanted = epochs[case], f"Rank 0's own losses say {alone[case][0]}."
    rank = next(rank for rank, count in enumerate(counts) if count != alone[case][0])
    if len(set(counts)) == 1:
        return f"all trained {counts[0]} epochs. {wanted} {_guess_rule(alone, epochs)}"
    apart = f"rank 0 trained {counts[0]} epochs and rank {rank} {counts[rank]}"
    if not any(one["messages"] for ranks in seen for one in ranks):
        return f"{apart}: each decided for itself. {wanted}"
    return f"{apart}. {wanted} Does every rank hear of it in every epoch?"


def _guess_rule(alone: list[list[int]], epochs: list[list[Any]]) -> str:
    """By which rule all ranks stop together, told by all cases."""
    trained = [counts[0] for counts in epochs]
    deciders = [rank for rank in range(1, len(alone[0])) if [row[rank] for row in alone] == trained]
    if deciders:
        return f"Rank {deciders[0]} decides for all. From which rank does a broadcast come?"
    if [min(row) for row in alone] == trained:
        return "Whoever wants to stop stops all. Does every rank have a say?"
    if [max(row) for row in alone] == trained:
        return "They go on until everyone wants to stop. Was a vote asked for?"
    return "Whose `stop` do they follow?"


def _exercise(script: str, find_mistake: Callable[[Attempt], str | None], on: str) -> ScriptExercise:
    return ScriptExercise(script, find_mistake, f"with 1, 2, 3 and 4 processes, {on}")


CHECKS = {
    "02.1": _exercise("scripts/02_global_mean.py", global_mean, "on shards of unequal length, also empty ones"),
    "02.2": _exercise("scripts/02_ring.py", ring_all_reduce, "on tensors of five sizes, and its messages were counted"),
    "02.3": _exercise("scripts/02_stop_together.py", stop_together, "on losses that the ranks disagree about"),
}
