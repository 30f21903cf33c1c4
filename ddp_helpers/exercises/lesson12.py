"""Exercises of lesson 12: what is done once a node and once a job, the bytes that a rank holds, a pipeline's bubble.

12.1 is called by nodes_harness.py on two simulated nodes, 12.2 by memory_harness.py beside real trainings; 12.3 is
compared with a schedule that is laid out piece by piece.
"""

from __future__ import annotations

import tempfile
from typing import Any

from ..pictures.pipeline import bubble, most_held
from ..result import Run
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .note import left_by

Seen = dict[int, dict[str, Any]]


def _seen(attempt: Attempt, run: Run) -> Seen:
    """What the ranks left; Wrong when one failed, with where that was."""
    seen = left_by(run, "seen.json")
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        raise Wrong(f"{wrong}{_where(seen, run, wrong.failure)}", wrong.failure) from None
    return seen


def _where(seen: Seen, run: Run, failure: str) -> str:
    where = seen.get(run.failure.rank if run.failure else 0, {}).get("in", "")
    told = f"\nThat was in {where}()." if where not in ("", "the end") else ""
    if where == "local_device":
        told += " Only name the number, from what torchrun tells each process: that needs no GPU."
    if "imed out" in failure or "closed by peer" in failure or "mismatch" in failure:
        told += " A rank waits for ranks that do not come: a barrier belongs to all ranks, outside of any if."
    return told


# ---- 12.1 -----------------------------------------------------------------------------------------------------------


def fit_for_nodes(attempt: Attempt) -> str | None:
    """The four functions on two nodes with two ranks each, then on one node, then alone."""
    for nnodes, nproc in ((2, 2), (1, 3), (1, 1)):
        with tempfile.TemporaryDirectory() as folder:
            run = attempt.run_through("nodes_harness.py", "nodes", folder, nproc=nproc, nnodes=nnodes)
            seen = _seen(attempt, run)
        for judge in (_judge_fetch, _judge_share, _judge_device, _judge_save):
            hint = judge(seen)
            if hint:
                return f"{crowd(run)} {hint}"
    return None


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _judge_fetch(seen: Seen) -> str | None:
    elsewhere = [rank for rank, note in seen.items() if note["elsewhere"]]
    if elsewhere:
        return f"fetch() returns a path on rank {elsewhere[0]} that is not in the folder it was given."
    for node in sorted({note["node"] for note in seen.values()}):
        mine = [rank for rank, note in seen.items() if note["node"] == node]
        loaded = [rank for rank in mine for _ in range(seen[rank]["downloads"])]
        if not loaded:
            return (
                f"nobody downloads the data to node {node}'s disk. Which rank is the first one on each node? (What "
                'os.environ holds is text: "0", and not 0.)'
            )
        if len(loaded) > 1:
            return f"{_ranks(loaded)} download the data to node {node}'s disk, into one file. Once a node is enough."
    early = [rank for rank, note in seen.items() if not note["fetched"]]
    loaders = [rank for rank in early if seen[rank]["downloads"]]
    if loaders:
        return f"fetch() downloads on {_ranks(loaders)}, and not to the path that it returns."
    if early:
        return (
            f"fetch() has returned on {_ranks(early)} before the whole file was there. Who waits for the download? (A "
            "file that exists need not be whole, and nobody knows how long to sleep.)"
        )
    return None


def _judge_share(seen: Seen) -> str | None:
    for number, (samples, _) in enumerate(seen[0]["shares"]):
        shares = {rank: note["shares"][number][1] for rank, note in seen.items()}
        if any(share is None for share in shares.values()):
            return f"share({samples}) returns nothing that can be gone through."
        for rank, share in shares.items():
            twin = [other for other in range(rank) if share and shares[other] == share]
            if twin:
                return (
                    f"share({samples}) gives ranks {twin[0]} and {rank} the same samples, {share}. What sets these two "
                    "apart: the rank or the local rank?"
                )
        dealt = sorted(sample for share in shares.values() for sample in share)
        if dealt != list(range(samples)):
            missing = sorted(set(range(samples)) - set(dealt))
            what = f"nobody has {missing}" if missing else "some samples are dealt twice"
            return f"share({samples}): {what}. The ranks have {', '.join(map(str, shares.values()))}."
    return None


def _judge_device(seen: Seen) -> str | None:
    for rank, note in seen.items():
        device, local = note["device"], note["local_rank"]
        if device == local:
            continue
        if device is None:
            return f"local_device() gives rank {rank} no number. (With GPUs, it is the number of the GPU to use.)"
        if isinstance(device, str):
            return f'local_device() gives {device!r}, a text. The number of a GPU is an int: torch takes 1 or "cuda:1".'
        if device == rank:
            return (
                f"rank {rank} takes GPU {device} of node {note['node']}. A node's GPUs are counted from 0, and this "
                f"is local rank {local}."
            )
        return (
            f"local_device() gives rank {rank}, local rank {local} of node {note['node']}, GPU {device}. What torchrun "
            "tells each process gives the number, without counting GPUs."
        )
    return None


def _judge_save(seen: Seen) -> str | None:
    writers = [rank for rank, note in seen.items() for _ in range(note["saves"])]
    if not writers:
        return "no rank calls torch.save."
    if len(writers) > 1:
        return (
            f"{_ranks(writers)} all save, into one file of the shared file system. Once a job, and not once a node."
            if len(writers) < len(seen)
            else f"all ranks save ({_ranks(writers)}), into one file of the shared file system. Once a job is right."
        )
    early = [rank for rank, note in seen.items() if not note["saved"]]
    if writers[0] in early:
        return f"rank {writers[0]} saves, and there is nothing at `path`. Write to the path that save() is given."
    if early:
        return (
            f"save() has returned on {_ranks(early)} before the whole checkpoint was there. Who waits for the writer? "
            "(A file that exists need not be whole, and nobody knows how long to sleep.)"
        )
    if any(note["saved"] == "something else" for note in seen.values()):
        return "the checkpoint does not hold the state that save() was given."
    return None


# ---- 12.2 -----------------------------------------------------------------------------------------------------------

PARTS = ("parameters", "gradients", "optimizer")
CUT = {"DDP": (), "ZeRO-1": ("optimizer",), "FSDP": PARTS}  # what a rank has a part of


def counts_bytes(attempt: Attempt) -> str | None:
    """held() says what each of three trainings was measured to hold, at two world sizes."""
    for nproc, width in ((3, 24), (2, 16)):  # first three: one half is a mistake of its own
        run = attempt.run_through("memory_harness.py", "memory", str(width), nproc=nproc)
        for rank, note in _seen(attempt, run).items():
            for model in note["models"]:
                hint = _judge_bytes(model, nproc)
                if hint:
                    return f"{crowd(run)} rank {rank}, {model['way']}, {model['parameters']} parameters: {hint}"
    return None


def _judge_bytes(model: dict[str, Any], world: int) -> str | None:
    said, measured, way = model["said"], model["measured"], model["way"]
    if isinstance(said, str):
        return f"held() returns {said}, and not a dict with the keys {', '.join(PARTS)}."
    for part in PARTS:
        if said[part] is None:
            return f"held() says no number of bytes for {part!r}."
        if said[part] != measured[part]:
            return (
                f"held() says {said[part]:,.0f} bytes of {part}, and {measured[part]:,} were measured. "
                f"{_why(way, part, said[part] / measured[part], world)}"
            )
    return None


def _why(way: str, part: str, ratio: float, world: int) -> str:
    if ratio == 0.25:
        return "That is a number of numbers. A float32 has 4 bytes."
    if part == "optimizer" and ratio in (0, 0.5) and way == "DDP":
        return "Adam keeps two numbers for each parameter: a mean of the gradients, and one of their squares."
    if part in CUT[way] and ratio == world / 2:
        return f"That is one half. It is divided by the number of ranks, and there are {world}."
    if part == "optimizer" and ratio == 1.5:
        return "Adam's state is two numbers a parameter; the parameters themselves are counted already."
    if ratio == world:
        return f"In {way}, who needs all of them? A rank keeps its own part only."
    if ratio == 1 / world:
        once = f"{way} divides them among the ranks once."
        return once if part in CUT[way] else f"{way} does not cut the {part}: each rank has all of them."
    if ratio < 1e-5:
        return "In bytes, please, and not in MiB or GiB."
    if not 0.01 < ratio < 100:
        return "held() gets the parameters and the ranks as arguments; here they are others than in your cell."
    return f"It is {ratio:g} times what it should be."


# ---- 12.3 -----------------------------------------------------------------------------------------------------------

STAGES, AT_MOST = 4, 0.10
NAMES = ("micro-batches", "held by GPipe", "held by 1F1B")


def gpipe(stages: int, micros: int) -> list[list[str]]:
    """All forwards, then all backwards."""
    order = [f"F{micro}" for micro in range(micros)] + [f"B{micro}" for micro in range(micros)]
    return [order] * stages


def one_f_one_b(stages: int, micros: int) -> list[list[str]]:
    """As many forwards as it takes to reach the last stage, then one backward for one forward."""
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage, micros)
        order = [f"F{micro}" for micro in range(ahead)]
        for micro in range(micros):
            order.append(f"B{micro}")
            if ahead + micro < micros:
                order.append(f"F{ahead + micro}")
        orders.append(order)
    return orders


def fewest_micro_batches(stages: int, at_most: float) -> int:
    """By trying: lay the schedule out with 1, 2, 3 … micro-batches."""
    micros = 1
    while bubble(gpipe(stages, micros)) > at_most + 1e-12:
        micros += 1
    return micros


def small_bubble(answer: object) -> str | None:
    """The fewest micro-batches for a bubble of 10 % in four stages, and what stage 0 holds under both schedules."""
    if not isinstance(answer, dict) or not set(NAMES) <= set(answer):
        return f"The answer is a dict with three numbers: {', '.join(NAMES)}."
    for name in NAMES:
        if not isinstance(answer[name], int | float) or answer[name] < 1 or answer[name] != int(answer[name]):
            return f"{name}: a whole number of micro-batches; yours is {answer[name]!r}."
    micros = int(answer["micro-batches"])
    return _judge_micros(micros) or _judge_held(answer, micros)


def _judge_micros(micros: int) -> str | None:
    right = fewest_micro_batches(STAGES, AT_MOST)
    if micros == right:
        return None
    share = (STAGES - 1) / (micros + STAGES - 1)
    story = f"With {micros} micro-batches, {100 * share:.1f} % of the time is waiting."
    if micros < right:
        return f"{story} More micro-batches make the bubble smaller."
    if micros == round((STAGES - 1) / AT_MOST):
        return (
            f"{story} You took (p − 1) / m = {AT_MOST:g}. That compares the waiting with the work; a share of the time "
            "has both below the line. Fewer would do."
        )
    if micros in {round(STAGES / AT_MOST) - less for less in (0, STAGES - 1, STAGES)}:  # p for p - 1, once or twice
        return f"{story} Fewer would do: how many pieces does the last stage wait for before its first, p or p − 1?"
    return f"{story} Fewer would do."


def _judge_held(answer: dict[str, Any], micros: int) -> str | None:
    for name, orders in (("GPipe", gpipe(STAGES, micros)), ("1F1B", one_f_one_b(STAGES, micros))):
        right, said = most_held(orders[0]), int(answer[f"held by {name}"])
        if said == right:
            continue
        story = f"held by {name}: the first stage holds the activations of another number than {said}."
        if name == "GPipe":
            return f"{story} When does its first backward come: after how many forwards?"
        if said == micros:
            return f"{story} That is GPipe's. When does 1F1B's first backward come?"
        if said == 1:
            return f"{story} That is the last stage. How many forwards has the first one made by then?"
        return (
            f"{story} The picture has three stages, and its first one makes 3 forwards before its first backward. Here "
            "there are four stages."
        )
    return None


# ---------------------------------------------------------------------------------------------------------------------

TRIED_NODES = "on 2 nodes with 2 processes each, and on one with 3 and with 1"
TRIED_MEMORY = "beside real trainings of two models on 2 and on 3 ranks"

CHECKS = {
    "12.1": ScriptExercise("scripts/12_job.py", fit_for_nodes, TRIED_NODES),
    "12.2": ScriptExercise("scripts/12_held.py", counts_bytes, TRIED_MEMORY),
    "12.3": small_bubble,
}
