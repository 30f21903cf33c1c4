"""Exercises of lesson 03: a DDP of one's own, unequal shards, and three scripts that break without an error.

Each check runs the learner's script within ddp_harness.py, with other models, losses or data at every call. What is
right is computed there, in one process and with no collective.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ..result import Run
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .note import left_by

HARNESS = "ddp_harness.py"
WORLDS = (2, 3, 4, 1)  # most mistakes show with two
Seen = dict[int, dict[str, Any]]


WAITS = "A rank waits in a collective that another never calls. Every rank must make the same calls, in the same order."
WAITING = {"closed by peer": WAITS, "Timed out": WAITS, "did not end within": WAITS}


def _seen(attempt: Attempt, what: str, world: int, on_error: Mapping[str, str], backend: str = "") -> tuple[Run, Seen]:
    """Run the script in its harness; Wrong when a rank fails, with the hint for a message that is known."""
    seed = str(random.randrange(1_000_000))
    try:
        run = attempt.succeeded(attempt.run_through(HARNESS, what, seed, backend, nproc=world))
    except Wrong as wrong:
        hints = [hint for text, hint in on_error.items() if text in (wrong.failure or str(wrong))]
        raise Wrong("\n".join([str(wrong), *hints[:1]]), wrong.failure) from None
    seen = left_by(run, "seen.json")
    missing = next((note["missing"] for note in seen.values() if "missing" in note), None)
    if missing:
        raise Wrong(f"{crowd(run)} the script has not {missing}.")
    return run, seen


def _ratio(value: float, right: float) -> str:
    return f"{value / right:.3g}" if right else "many"


# ---- 03.1: share(model) ---------------------------------------------------------------------------------------------

NOT_YET = "When share() is called nothing has been computed yet, and .grad is None. Who calls you when it is there?"
SHARE_ERRORS = {
    "doesn't require gradient": "A frozen parameter gets no gradient, so there is none to average. But all ranks need "
    "rank 0's value of it.",
    "Expected parameter `tensor`": NOT_YET,
    "'NoneType'": NOT_YET,
    **WAITING,
}
KIND = {"plain": "", "tied": " in a model whose two layers share a weight", "frozen": " in a model with a frozen layer"}


def own_ddp(attempt: Attempt) -> str | None:
    """share() gives all ranks rank 0's weights, and makes backward() average."""
    for world in WORLDS:
        run, seen = _seen(attempt, "share", world, SHARE_ERRORS)
        for kind in KIND:
            notes = {rank: note[kind] for rank, note in seen.items()}
            hint = _judge_weights(run, kind, notes) or _judge_gradients(run, kind, notes)
            if hint:
                return hint
    return None


def _judge_weights(run: Run, kind: str, notes: Seen) -> str | None:
    if any(note["untied"] for note in notes.values()):
        return (
            f"{crowd(run)} two layers shared one weight, and after share() they have two. Write into the parameters "
            "that are there, and put no others in their place."
        )
    rank = next((rank for rank, note in notes.items() if note["wrong"]), None)
    if rank is None:
        return None
    name = notes[rank]["wrong"][0]
    values = {number: note["starts"][name] for number, note in notes.items()}
    start = f"{crowd(run)}{KIND[kind]} after share() rank {rank} has {values[rank]:+.4f} as the first number of {name}"
    if len(set(values.values())) == 1:
        return f"{start}, as all ranks have, but it is not what rank 0 began with. Whose weights go to whom?"
    hint = f"{start}, rank 0 has {values[0]:+.4f}."
    if kind == "frozen":
        return f"{hint} {name} is frozen: it is never trained, but it takes part in every forward."
    if notes[rank]["wrapper"]:
        return f"{hint} {_WRAPPER}"
    return f"{hint} Averaging gradients never brings weights together that began apart."


_WRAPPER = "share() returns another module, but the loop goes on with the model that it was given."
GRADIENT_HINTS = {
    "own": "That is the gradient of its own samples: nothing came from the other ranks.",
    "summed": "That is the sum over the ranks. DDP's is the average.",
    "divided twice": "It was divided by the number of ranks once too often.",
    "own, divided": "It is its own, divided by the number of ranks, and nothing was added to it.",
    "other": "It is neither the average, nor the sum, nor its own. What reaches .grad, and when is it complete?",
}


def _judge_gradients(run: Run, kind: str, notes: Seen) -> str | None:
    for rank, note in notes.items():
        if not note["complete"]:
            return (
                f"{crowd(run)}{KIND[kind]} rank {rank} has not as many gradients after backward() as one process has."
            )
        if note["gradient"] != "right":
            unused = note["wrapper"] and note["gradient"] == "own"
            return (
                f"{crowd(run)}{KIND[kind]} rank {rank} has {note['value']:+.5f} in .grad after backward(), "
                f"one process with all samples has {note['right']:+.5f}. "
                f"{_WRAPPER if unused else GRADIENT_HINTS[note['gradient']]}"
            )
    late = next((rank for rank, note in notes.items() if note["later"]), None)
    if late is None:
        return None
    return (
        f"{crowd(run)}{KIND[kind]} the first gradient is right, but after three more steps rank {late} has "
        "not the weights of one process. Does every backward() exchange, or only the first?"
    )


# ---- 03.2: to_backward(losses) --------------------------------------------------------------------------------------

LOSS_ERRORS = {
    "does not require grad": "The number must still know how it was computed: .item(), .detach() and torch.tensor(…) "
    "forget that.",
    "scalar outputs": "backward() wants one number, not one a sample.",
    "'NoneType' object has no attribute": "to_backward() returns nothing.",
    **WAITING,
}
_ONE_SPLIT = "Your cell's 6 + 2 is not the only split. Which number in it knows that?"
LOSS_HINTS = {
    "one vote a rank": "Each rank's mean counts as much as any other's, however many samples it stands for. By what "
    "must the sum of a rank's losses be divided?",
    "divided twice": "Exactly the number of ranks is missing. Who else divides, after you?",
    "a sum": "That is the sum over all samples. By what is a mean divided?",
    "sums averaged": "DDP has averaged the sums of the ranks. How many samples are there on all ranks together?",
    "one vote a rank, summed": "The sum of the ranks' means: now each rank's vote counts in full, but still each rank "
    "has one.",
    "summed": "It is too large by the number of ranks: once multiplied too often.",
    "written for 6 + 2": _ONE_SPLIT,
    "written for 8 samples": _ONE_SPLIT,
    "written for 2 ranks": "There are not always two ranks. Which number in your cell knows how many there are?",
    "other": "It is none of the usual mistakes. What does DDP do with the gradients of your number, and what should "
    "come out?",
}


def one_vote_a_sample(attempt: Attempt) -> str | None:
    """The averaged gradient is that of the mean over all samples, for unequal and for equal shards."""
    for world in WORLDS:
        run, seen = _seen(attempt, "losses", world, LOSS_ERRORS)
        for split in ("unequal", "equal"):
            for rank, notes in seen.items():
                note = notes[split]
                if note["gradient"] != "right":
                    return f"{crowd(run)} {_shares(note)} {_difference(rank, note)} {LOSS_HINTS[note['gradient']]}"
    return None


def _shares(note: dict[str, Any]) -> str:
    counts = " + ".join(str(size) for size in note["sizes"])
    return f"{counts} samples:"


def _difference(rank: int, note: dict[str, Any]) -> str:
    times = _ratio(note["value"], note["right"])
    return f"rank {rank} has {note['value']:.4f} in .grad, one process has {note['right']:.4f} ({times} times)."


# ---- 03.3 to 03.5: broken scripts -----------------------------------------------------------------------------------

TRAINING_ERRORS = {
    **WAITING,
    "Missing key": "The names in a wrapper's state begin with module.; what is inside has none.",
}


NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]


def one_model(attempt: Attempt) -> str | None:
    """All ranks end with the weights of one process, each has done its share of the work, and rank 0 has saved."""
    for world in WORLDS:
        run, seen = _seen(attempt, "checkpoint", world, TRAINING_ERRORS)
        hint = _judge_models(run, seen) or _judge_saved(run, seen)
        if hint:
            return hint
    return _judge_on_nccl(attempt)


def _judge_on_nccl(attempt: Attempt) -> str | None:
    """On two ranks that are told that they use NCCL. A script that fails then (it may want a GPU) is not judged."""
    try:
        run, seen = _seen(attempt, "checkpoint", 2, TRAINING_ERRORS, "nccl")
    except Wrong:
        return None
    if _judge_models(run, seen):
        return "With NCCL this script is not wrapped. Should wrapping depend on the backend at all?"
    return None


def _judge_saved(run: Run, seen: Seen) -> str | None:
    """One checkpoint, of rank 0, with the names of the plain model and the weights of one process."""
    other = next((rank for rank, note in seen.items() if rank and note["saved"]), None)
    if other is not None:
        path = seen[other]["saved"][-1]["path"]
        too = "to the same path too" if path in [save["path"] for save in seen[0]["saved"]] else f"to {path}"
        return f"{crowd(run)} rank {other} saved {too}. There is one model, and a file that several write may be torn."
    if not seen[0]["saved"]:
        return f"{crowd(run)} nobody saved the model."
    saved = seen[0]["saved"][-1]
    if saved["kind"] != "state":
        return f"{crowd(run)} rank 0 saved a {saved['kind']}, not the names and weights that state_dict() gives."
    if saved["names"] == [f"module.{name}" for name in NAMES]:
        return (
            f"{crowd(run)} the names in the checkpoint begin with module. ({saved['names'][0]}). A model that is not "
            "wrapped cannot load them."
        )
    if saved["names"] != NAMES:
        return f"{crowd(run)} the checkpoint holds {', '.join(saved['names'])}; the model's are {', '.join(NAMES)}."
    if saved["off"] is None or saved["off"] > 1e-4:
        return f"{crowd(run)} the weights in the checkpoint are not those after the last step. When was it saved?"
    return None


def average_once(attempt: Attempt) -> str | None:
    """The gradient that the optimizer sees is that of one process, for any number of ranks."""
    for world in WORLDS:
        run, seen = _seen(attempt, "jumps", world, TRAINING_ERRORS)
        hint = _judge_first_gradient(run, seen) or _judge_models(run, seen) or _judge_messages(run, seen[0])
        if hint:
            return hint
    return None


def _judge_messages(run: Run, note: dict[str, Any]) -> str | None:
    if note["averaged_calls"] and note["sent"] >= note["wanted_steps"] * note["parameters"]:
        return (
            f"{crowd(run)} the gradients are right now, but they travel twice: once in backward(), once in your loop. "
            "Which of the two can go?"
        )
    return None


def _judge_models(run: Run, seen: Seen) -> str | None:
    zero, last = seen[0], seen[max(seen)]
    if last["samples"] != last["share"]:
        return (
            f"{crowd(run)} rank {last['rank']} trains on {last['samples']} samples. {last['share']} would be its "
            f"share: {last['wanted_steps']} steps of 48 in all. The ranks share the work, or there is no use in them."
        )
    difference = max(
        abs(a - b) for note in seen.values() for a, b in zip(zero["weights"], note["weights"], strict=True)
    )
    if difference > 1e-5:
        start = f"{crowd(run)} ranks end with models that are up to {difference:.2g} apart in one weight."
        if not last["wrapper"]:
            return f"{start} Nothing ever carried a gradient from one to another. Print type(model) on each rank."
        if not last["wrapped_calls"]:
            return f"{start} There is a wrapper, but no forward went through it. Whom does the loop call?"
        return f"{start} What is different on rank {last['rank']}?"
    if zero["off"] > 1e-4:
        return (
            f"{crowd(run)} all have one model, but not that of one process: a weight is off by {zero['off']:.2g}. It "
            "must be the same in every step, not at the end only."
        )
    return None


def _judge_first_gradient(run: Run, seen: Seen) -> str | None:
    world = len(seen)
    for rank, note in seen.items():
        if note["first_is_right"]:
            continue
        times = note["gradient"] / note["right_gradient"] if note["right_gradient"] else 0.0
        start = (
            f"{crowd(run)} rank {rank} has {note['gradient']:+.5f} in .grad at its first step, "
            f"one process has {note['right_gradient']:+.5f}"
        )
        if abs(times - world) < 1e-3:
            smaller = note["lr"] < 1.0
            return f"{start}: {world} times as much. {_hint_for_lr(note['lr']) if smaller else _HINT_FOR_SUM}"
        if abs(times * world - 1) < 1e-3:
            return f"{start}: 1/{world} of it. It was divided once too often. Who divides, and how often?"
        return f"{start}. Its own samples alone would not give that of all. Who averages, now?"
    return None


_HINT_FOR_SUM = (
    "backward() has averaged. What happens to that average before the optimizer sees it? (The script was once written "
    "by hand, as in 3.2, and then moved to DDP.)"
)


def _hint_for_lr(lr: float) -> str:
    return (
        f"A smaller learning rate ({lr:g}) hides that from SGD, but not from weight_decay, and not from clipping. "
        "Mend the gradient."
    )


def accuracy_of_all(attempt: Attempt) -> str | None:
    """Rank 0 prints the accuracy over all held-out digits, exactly."""
    for world in WORLDS:
        run, seen = _seen(attempt, "accuracy", world, TRAINING_ERRORS)
        hint = _judge_shares(run, seen) or _judge_accuracy(run, seen[0]) or _judge_models(run, seen)
        if hint:
            return hint
    return None


def _judge_shares(run: Run, seen: Seen) -> str | None:
    for rank, note in seen.items():
        if note["looked_at"] > max(note["sizes"]):
            return (
                f"{crowd(run)} rank {rank} looks at {note['looked_at']} of the {sum(note['sizes'])} held-out digits. "
                f"Its share is {note['sizes'][rank]}. How does rank 0 learn what the others found?"
            )
    return None


def _judge_accuracy(run: Run, note: dict[str, Any]) -> str | None:
    printed = [metric["accuracy"] for metric in run.metrics if metric["rank"] == 0 and "accuracy" in metric]
    if not printed:
        return f'{crowd(run)} rank 0 printed no "accuracy=…".'
    correct, sizes = note["correct"], note["sizes"]
    world, right = len(sizes), sum(correct) / sum(sizes)
    if abs(printed[-1] - right) < 6e-5:
        return None
    means = sum(c / s for c, s in zip(correct, sizes, strict=True)) / world
    known = {
        correct[0] / sum(sizes): f"That is rank 0's {correct[0]} right answers, divided by all {sum(sizes)} digits.",
        correct[0] / sizes[0]: f"That is the accuracy on rank 0's own {sizes[0]} digits. What do the others find?",
        correct[0] * world / sum(sizes): "That takes for granted that the others have as many right as rank 0.",
        means: f"That gives each rank one vote, but their shares are of {_span(sizes)} digits.",
        sum(correct) / sizes[0]: f"All right answers are in it, but only {sizes[0]} of the {sum(sizes)} digits.",
        100 * right: "That is the right number, in percent. The broken script prints a fraction.",
        right / world: "All right answers are in it, and then it was divided by the number of ranks.",
    }
    near = 1e-4 * max(1.0, printed[-1])  # printed with four digits, a percentage perhaps with two
    hint = next((hint for value, hint in known.items() if abs(printed[-1] - value) < near), "Count, add, then divide.")
    return (
        f"{crowd(run)} on other digits than your cell's, rank 0 prints {printed[-1]:.4f}, one process finds "
        f"{right:.4f}. {hint}"
    )


def _span(sizes: list[int]) -> str:
    return f"{min(sizes)} or {max(sizes)}" if min(sizes) < max(sizes) else str(sizes[0])


_TRIED = "with 1, 2, 3 and 4 processes, and compared with one process on the whole batch"
CHECKS = {
    "03.1": ScriptExercise(
        "scripts/03_share.py", own_ddp, f"on three models, also with tied and frozen weights, {_TRIED}"
    ),
    "03.2": ScriptExercise("scripts/03_one_vote.py", one_vote_a_sample, f"on unequal and equal shards, {_TRIED}"),
    "03.3": ScriptExercise("scripts/03_checkpoint.py", one_model, f"on digits in another order {_TRIED}"),
    "03.4": ScriptExercise("scripts/03_jumps.py", average_once, f"on digits in another order {_TRIED}"),
    "03.5": ScriptExercise("scripts/03_accuracy.py", accuracy_of_all, "on other digits with 1, 2, 3 and 4 processes"),
}
