"""Exercises of lesson 07: choose a bucket size, accumulate with one exchange, a communication hook that counts.

Each check calls the learner's functions within bucket_harness.py, with other data at every call. What is right is
computed there and in bucket_problem.py, by hand and in one process.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from . import bucket_problem
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .note import left_by

HARNESS = "bucket_harness.py"
STEPS = 3  # of the model in 07.3
Seen = dict[int, dict[str, Any]]


def _seen(attempt: Attempt, what: str, world: int, seed: int, on_error: Mapping[str, str]) -> tuple[str, Seen]:
    """How many ranks ran, and what they left; Wrong when one failed, with the hint for a message that is known."""
    try:
        run = attempt.succeeded(attempt.run_through(HARNESS, what, str(seed), nproc=world))
    except Wrong as wrong:
        hints = [hint for text, hint in on_error.items() if text in (wrong.failure or str(wrong))]
        raise Wrong("\n".join([str(wrong), *hints[:1]]), wrong.failure) from None
    return crowd(run), left_by(run, "seen.json")


def _seed() -> int:
    return random.randrange(1_000_000)


# ---- 07.1 -----------------------------------------------------------------------------------------------------------

FINISH_HINTS = {
    "no overlap": "That is all computing plus all messages: nothing overlaps. What runs while the first bucket "
    "travels?",
    "all at once": "Here the messages travel side by side, as if each had a line of its own. What must a bucket wait "
    "for besides its gradients?",
    "last alone": "Here the last bucket leaves as if no other were under way. What must a bucket wait for besides its "
    "gradients?",
    "own seconds": "Its gradients also wait for those of all buckets before: count from the start of backward.",
    "milliseconds": "1000 times too much: in seconds, please.",
    "from the end": "That counts from the end of backward; from its start, please.",
    "positions": "Those are positions. Which bytes stand there?",
    "from the first": "Here a bucket leaves when its first gradient is there. Which of its gradients does it wait for?",
    "before the last": "Here a bucket leaves before its last gradient is computed. Which ones does a slice include?",
    "communication": "That is the time of all messages in a row. They do not begin at 0: gradients must come first.",
    "one latency": "alpha is counted once for the whole step. How many messages are there?",
    "one latency at the end": "alpha is counted once for the whole step. How many messages are there?",
    "no latency": "alpha is nowhere in it. What does even an empty message cost?",
    "latency for each": "alpha is counted for each gradient. What travels as one message?",
    "bandwidth": "beta is in seconds for a byte, no bandwidth. Multiply.",
    "other": "It is none of the usual mistakes. Do one with a pencil: two gradients, two buckets.",
}
CHOOSE_ERRORS = {"'NoneType'": "finish() or choose() returns nothing."}


def good_cap(attempt: Attempt) -> str | None:
    """finish() gives the model's time for any cap, choose() the best cap, and the buckets are those of DDP."""
    for world in (2, 1):
        seed = _seed()
        start, seen = _seen(attempt, "choose", world, seed, CHOOSE_ERRORS)
        for note in seen.values():
            hint = _judge_finish(note, seed) or _judge_choice(note, seed) or _judge_positions(note)
            if hint:
                return f"{start} {hint}"
    return None


def _judge_finish(note: dict[str, Any], seed: int) -> str | None:
    pairs = list(zip(bucket_problem.problems(seed), note["finish"], strict=True))
    name = bucket_problem.name_of(pairs)
    for problem, answers in pairs:
        rights = [bucket_problem.right(problem, cap) for cap in bucket_problem.CAPS]
        n = next((n for n, answer in enumerate(answers) if not bucket_problem.same(answer, rights[n])), None)
        if n is None:
            continue
        value = f"{1e3 * answers[n]:.3f} ms" if isinstance(answers[n], float) else f"{answers[n]}"
        return (
            f"finish() gives {value} for a cap of {bucket_problem.CAPS[n]:g} MiB ({len(problem.sizes)} gradients, "
            f"alpha = {problem.alpha:g} s); {1e3 * rights[n]:.3f} ms is right. {FINISH_HINTS[name]}"
        )
    return None


def _judge_choice(note: dict[str, Any], seed: int) -> str | None:
    caps = bucket_problem.CAPS
    for problem, chosen in zip(bucket_problem.problems(seed), note["choice"], strict=True):
        times = {cap: bucket_problem.right(problem, cap) for cap in caps}
        if not isinstance(chosen, int | float) or chosen not in times:
            return f"finish() is right, but choose() returns {chosen}: it is to return one of the caps."
        best = min(times, key=lambda cap: times[cap])
        if bucket_problem.same(times[chosen], times[best]):
            continue
        story = f"choose() takes {chosen:g} MiB, done after {1e3 * times[chosen]:.3f} ms"
        asked = {
            max(times, key=lambda cap: times[cap]): "That is the slowest of all.",
            caps[0]: "It is not always the first one.",
            caps[-1]: "It is not always the last one.",
        }
        return (
            f"finish() is right, but {story}; {best:g} MiB takes {1e3 * times[best]:.3f} ms. "
            f"{asked.get(chosen, 'Which number does finish() give for each of them?')}"
        )
    return None


def _judge_positions(note: dict[str, Any]) -> str | None:
    made, wanted = note["by_hand"], note["by_ddp"]
    if made == wanted:
        return None
    return f"positions() makes buckets of {made} bytes, and DDP of {wanted}. It was right; was it changed?"


# ---- 07.2 -----------------------------------------------------------------------------------------------------------

TRAIN_ERRORS = {
    "closed by peer": "One rank sends, and another does not. All must send after the same micro-batch.",
    "did not end within": "One rank sends, and another does not. All must send after the same micro-batch.",
}
WEIGHT_HINTS = {
    "sums": "The losses of a group's micro-batches were added. What makes a mean of their sum?",
    "divided by every": "The short group too was divided by 'every'. How many are in it?",
    "divided by all": "Each loss was divided by the number of all micro-batches. How many make one step?",
    "divided by ranks": "DDP has already divided by the number of ranks.",
    "last only": "Only the last micro-batch of a group is in it. When are gradients cleared?",
    "never cleared": "A step still has the gradients of the steps before. Who clears them?",
    "other": "Messages and steps are right, so is it the loss, or when gradients are cleared?",
}


def once_a_step(attempt: Attempt) -> str | None:
    """One exchange and one step a group, at its last micro-batch, with the mean of the group's losses."""
    for world in (2, 3, 1):
        start, seen = _seen(attempt, "accumulate", world, _seed(), TRAIN_ERRORS)
        for number in range(len(seen[0]["trials"])):
            for rank, note in seen.items():
                trial = note["trials"][number]
                hint = _judge_steps(trial) or _judge_messages(trial) or _judge_weights(rank, trial)
                if hint:
                    return f"{start} {trial['count']} micro-batches in groups of {trial['every']}: {hint}"
    return None


def _groups(trial: dict[str, Any]) -> int:
    return -(-int(trial["count"]) // int(trial["every"]))


def _judge_steps(trial: dict[str, Any]) -> str | None:
    steps, wanted = trial["events"].count("s"), _groups(trial)
    forwards = trial["events"].count("f")
    if forwards != trial["count"]:
        return f"the model was called {forwards} times. Each micro-batch goes through it once."
    if steps == wanted and "ff" in re.sub("[^fb]", "", trial["events"]):
        return "all graphs of a group were in memory at once, before the first backward. What are micro-batches for?"
    if steps == wanted:
        return None
    story = f"there were {steps} optimizer steps, and there are {wanted} groups."
    if steps == trial["count"]:
        return f"{story} When is a group complete?"
    if steps == trial["count"] // trial["every"]:
        return f"{story} What became of the short group at the end?"
    return story


def _judge_messages(trial: dict[str, Any]) -> str | None:
    letters, wanted = trial["events"], _groups(trial)
    sent = letters.count("A")
    after = [letters[: n + 1].count("f") for n, letter in enumerate(letters) if letter == "A"]
    ends = [min((group + 1) * trial["every"], trial["count"]) for group in range(wanted)]
    if after == ends:
        return None
    if sent == trial["count"]:
        quiet = "n" in letters
        why = "no_sync was used, but not around the forward." if quiet else "Who tells DDP to be quiet?"
        return f"gradients were sent {sent} times, and {wanted} would do. {why}"
    if not sent:
        return "DDP never sent gradients. The last micro-batch of a group is to send them."
    if after == ends[:-1] and trial["count"] % trial["every"]:
        return (
            f"gradients were sent {sent} times: not for the short group at the end, whose step each rank made with its "
            "own. Which micro-batch is its last?"
        )
    wrong = next((n for n in after if n not in ends), after[-1])
    return (
        f"gradients were sent {sent} times, once after micro-batch {wrong} (counted from 1). To be sent after: "
        f"{', '.join(map(str, ends))}. Who hears of those that follow?"
    )


def _judge_weights(rank: int, trial: dict[str, Any]) -> str | None:
    if trial["weights"] == "right":
        return None
    return (
        f"rank {rank} ends with {trial['first']:.4f} as its first weight, and not with that of one process that has "
        f"each group in one batch. {WEIGHT_HINTS[trial['weights']]}"
    )


# ---- 07.3 -----------------------------------------------------------------------------------------------------------

NO_TENSOR = "The Future's value is to be one tensor. That of all_reduce's own Future is a list with one."
HOOK_ERRORS = {
    "not a Future": "DDP wants a Future: work.get_future() gives one, and .then(…) another with a value you choose.",
    "hook result": NO_TENSOR,
    "'NoneType' object has no attribute 'get_future'": "Only async_op=True gives a work.",
    "'dict' object has no attribute 'size'": "The first argument of torch's hook is a process group, or None.",
    "in _engine_run_backward": "backward waits for a Future of yours that nobody completes: set_result(…), or return "
    "that of all_reduce, work.get_future().",
    "closed by peer": "A rank waits in a collective that another never calls.",
    "did not end within": "A rank waits in a collective that another never calls.",
}
GRADIENT_HINTS = {
    "sum": "That is the sum over the ranks. Who divides, now that you are the hook?",
    "own": "That is its own gradient. Nothing came from the others.",
    "divided twice": "It was divided by the number of ranks once too often.",
    "own, divided": "It is its own, divided, and nothing was added to it. Does the value come from after the exchange?",
    "divided by 2": "There are not always two ranks.",
    "rounded": "They are equal to a few digits only. In which precision was it sent?",
    "other": "It is none of the usual mistakes. What is the value of your Future, and when is it complete?",
}


def counting_hook(attempt: Attempt) -> str | None:
    """The hook averages, and counts the bytes of each bucket of each step."""
    for world in (2, 3, 1):
        start, seen = _seen(attempt, "count", world, _seed(), HOOK_ERRORS)
        for rank, note in seen.items():
            for model in note["models"]:
                hint = _judge_gradient(rank, model) or _judge_bytes(model, world)
                if hint:
                    return f"{start} {hint}"
    return None


def _judge_gradient(rank: int, model: dict[str, Any]) -> str | None:
    if model["gradient"] == "right":
        return None
    return (
        f"rank {rank} has {model['value']:+.7f} in .grad ({model['dtype']}), and the average is "
        f"{model['wanted']:+.7f}. {GRADIENT_HINTS[model['gradient']]}"
    )


def _judge_bytes(model: dict[str, Any], world: int) -> str | None:
    counted, size, numbers = model["bytes"], model["size"], model["numbers"]
    if counted == STEPS * size:
        return None
    shown = f"{counted:.10g}" if isinstance(counted, float) else counted
    story = (
        f"after {STEPS} steps of a {model['dtype']} model with {numbers} parameters, state['bytes'] is {shown}, "
        f"and {STEPS} · {size} were handed over."
    )
    if counted == 0:
        return f"{story} Nothing was counted, or not in the state that was given."
    if counted == STEPS * numbers:
        return f"{story} Those are numbers. How many bytes has each?"
    if counted == STEPS * numbers * 4:
        return f"{story} Not every number has 4 bytes."
    if counted == STEPS * size * world:
        return f"{story} That is what all ranks hand over; count this rank's."
    if counted == size:
        return f"{story} That is one step's. Is a state kept from step to step?"
    if counted in model["buckets"]:
        return f"{story} That is one bucket. Was the count added to, or replaced?"
    ring = STEPS * size * 2 * (world - 1) / world
    if isinstance(counted, float) and abs(counted - ring) < len(model["buckets"]):  # each may have been rounded
        return f"{story} That is what the ring carries; count what you hand over."
    return f"{story} Does your number come from this bucket?"


# ---------------------------------------------------------------------------------------------------------------------

CHECKS = {
    "07.1": ScriptExercise("scripts/07_choose.py", good_cap, "with three kinds of networks, and beside a real DDP"),
    "07.2": ScriptExercise("scripts/07_accumulate.py", once_a_step, "with 1, 2 and 3 processes, and four groupings"),
    "07.3": ScriptExercise("scripts/07_count.py", counting_hook, "with 1, 2 and 3 processes, in fp32 and fp64"),
}
