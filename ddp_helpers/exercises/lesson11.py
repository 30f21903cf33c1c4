"""Exercises of lesson 11: the whole training step, going on in the middle of an epoch, a target within a budget.

11.1 and 11.2 call the learner's functions within vit_harness.py; the truths are one process that has all samples in one
batch, and the order of the whole dataset, dealt out by hand. 11.3 trains with the learner's choice, on as many ranks as
it says (vit_budget_harness.py).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from .attempt import Attempt, NotTried, ScriptExercise, Wrong, crowd
from .note import left_by
from .vit_harness import (
    BATCH_CASES,
    FIRST,
    LEARNING_RATE,
    STEP_CASES,
    THEN,
    StepCase,
    make_net,
    micro_batches,
    weights_of,
)

HARNESS, BUDGET_HARNESS, NOTE = "vit_harness.py", "vit_budget_harness.py", "vit.json"
WORLDS = (2, 3)
BEFORE = f"With {WORLDS[0]} processes it was right. Is a {WORLDS[0]} written somewhere?"
UNEVEN = "Does each rank call as many collectives as the others? Their numbers of micro-batches differ."
Seen = dict[str, Any]


def _notes(attempt: Attempt, mode: str, world: int) -> tuple[str, list[list[Seen]]]:
    """For each case what every rank left."""
    run = attempt.run_through(HARNESS, mode, nproc=world)
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        if mode == "step" and "SIGABRT" in wrong.failure:  # so gloo ends ranks whose collectives do not match
            raise Wrong(f"{wrong}\n{UNEVEN}", wrong.failure) from None
        raise
    notes = left_by(run, NOTE)
    return crowd(run), [list(case) for case in zip(*(notes[rank]["cases"] for rank in sorted(notes)), strict=True)]


# ---- 11.1: the whole step -------------------------------------------------------------------------------------------


def as_one_process(attempt: Attempt) -> str | None:
    for world in WORLDS:
        start, cases = _notes(attempt, "step", world)
        for case, ranks in zip(STEP_CASES, cases, strict=False):  # fewer, if DDP sent too often
            hint = _judge_step(case, ranks)
            if hint:
                return f"{start} {hint}"
    return None


class Truth(NamedTuple):
    losses: list[float]
    weights: list[list[float]]
    after: float  # the loss of the first step's samples, after it


def one_process(case: StepCase, world: int, mistake: str = "") -> Truth:
    """Two steps with all samples in one batch; or as they are with a well-known mistake."""
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE)
    losses, weights, after = [], [], 0.0
    for step in range(2):
        shares = [micro_batches(case, step, rank) for rank in range(world)]
        if mistake != "not set to zero":
            optimizer.zero_grad()
        losses.append(_backward(net, shares, mistake))
        if mistake != "no clip":
            torch.nn.utils.clip_grad_norm_(net.parameters(), case.max_norm)
        optimizer.step()
        weights.append(weights_of(net))
        if step == 0:
            after = _mean_loss(net, [micro for share in shares for micro in share])
    return Truth(losses, weights, after)


def _mean_loss(net: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    with torch.no_grad():
        return cross_entropy(net(x), y).item()


def _backward(net: torch.nn.Module, shares: list[list[tuple[torch.Tensor, torch.Tensor]]], mistake: str) -> float:
    world, total = len(shares), sum(len(y) for share in shares for _, y in share)
    loss_sum = 0.0
    for share in shares:
        mine = sum(len(y) for _, y in share)
        for x, y in share[-1:] if mistake == "last only" else share:
            loss = cross_entropy(net(x), y, reduction="sum")
            loss_sum += loss.item()
            weight = {
                "mean of means": 1 / (len(y) * len(share) * world),
                "mean of ranks": 1 / (mine * world),
                "divided twice": 1 / (total * world),
                "not divided": 1 / (len(y) * world),
            }.get(mistake, 1 / total)
            (loss * weight).backward()
    return loss_sum / total


WHY_WEIGHTS = {
    "no clip": "That is the step with an unclipped gradient.",
    "last only": "Only each rank's last micro-batch is in the gradient.",
    "not set to zero": "After the second step, the first one's gradient is still in it.",
    "mean of means": "Every micro-batch weighs the same, whatever its size.",
    "mean of ranks": "Every rank weighs the same, however many samples it has. DDP averages over ranks, not samples.",
    "divided twice": "The gradient is too small by the number of ranks: you divide by all samples, and DDP averages.",
    "not divided": "The gradient grows with the number of micro-batches. What is a sum of means?",
}


def _judge_step(case: StepCase, ranks: list[Seen]) -> str | None:
    world = len(ranks)
    truth = one_process(case, world)
    counts = "; ".join(
        f"rank {rank}: {', '.join(map(str, case.sizes[rank % len(case.sizes)]))}" for rank in range(world)
    )
    where = f"with micro-batches of these sizes ({counts}), max_norm={case.max_norm:g},"
    messages = [note["messages"][0] for note in ranks]
    if max(messages) > 1:
        most = messages.index(max(messages))
        return (
            f"{where} DDP sends {max(messages)} times in a step on rank {most}. Only the last micro-batch should send."
        )
    for rank, note in enumerate(ranks):
        largest = max(case.sizes[rank % len(case.sizes)])
        if max(note["forwards"]) > largest:
            return (
                f"{where} the model gets {max(note['forwards'])} samples at once on rank {rank}, whose largest "
                f"micro-batch has {largest}. There is no memory for more."
            )
        if max(note["alive"]) > 1:
            return (
                f"{where} rank {rank} keeps the activations of {max(note['alive'])} micro-batches at once. There is "
                "memory for one: backward() after each."
            )
        if max(note["steps"]) > 1:
            return f"{where} the optimizer makes {max(note['steps'])} steps on rank {rank}. One is asked for."
    got = [note["weights"] for note in ranks]
    if not any(messages) and not all(_close(one, got[0][0]) for one in (note["weights"][0] for note in ranks)):
        return f"{where} DDP sends nothing at all, and each rank goes its own way. The last micro-batch should send."
    if not all(_close(one, right) for one, right in zip(got[0], truth.weights, strict=True)):
        return f"{where} the weights are not those of one process. {_why_weights(case, world, got[0])}"
    apart = [rank for rank in range(world) if not _close(got[rank][1], got[0][1])]
    if apart:
        return f"{where} rank {apart[0]} has other weights than rank 0 afterwards."
    if not any(messages):
        return f"{where} the weights are right, but DDP sent nothing: the last micro-batch's backward() should send."
    return _judge_losses(where, ranks, truth)


def _why_weights(case: StepCase, world: int, got: list[list[float]]) -> str:
    start = weights_of(make_net())
    if all(_close(one, start) for one in got):
        return "They have not changed at all."
    for name, text in WHY_WEIGHTS.items():
        if all(_close(one, right) for one, right in zip(got, one_process(case, world, name).weights, strict=True)):
            return text
    if world > WORLDS[0]:
        return BEFORE
    if case.max_norm < 1:
        return "Without clipping they were. Clip once, by its norm: the whole gradient, after it is there and averaged."
    return "What does each sample weigh in the gradient?"


def _judge_losses(where: str, ranks: list[Seen], truth: Truth) -> str | None:
    for rank, note in enumerate(ranks):
        for got, right in zip(note["losses"], truth.losses, strict=True):
            if got is None:
                return f"{where} the weights are right, and rank {rank} returns no loss."
            if abs(got - right) > 1e-4:
                shown = (
                    f"{where} the weights are right, and rank {rank} returns the loss {got:.4f}; {right:.4f} is true."
                )
                return f"{shown} {_why_loss(got, right, truth, [one['losses'][0] for one in ranks])}"
    return None


def _why_loss(got: float, right: float, truth: Truth, firsts: list[float | None]) -> str:
    world = len(firsts)
    if any(one is not None and abs(one - (firsts[0] or 0)) > 1e-4 for one in firsts):
        return "The ranks return different numbers: is it the loss of this rank's samples?"
    if abs(got * world - right) < 1e-4:
        return "It is too small by the number of ranks."
    if abs(got / world - right) < 1e-4:
        return "It is too large by the number of ranks."
    if abs((firsts[0] or 0) - truth.after) < 1e-4:
        return "It is the loss after the step."
    if world > WORLDS[0]:
        return BEFORE
    return "Over which samples is it the mean?"


def _close(one: list[float], other: list[float]) -> bool:
    return all(abs(a - b) < 1e-4 for a, b in zip(one, other, strict=True))


# ---- 11.2: in the middle of an epoch --------------------------------------------------------------------------------


def goes_on_in_the_middle(attempt: Attempt) -> str | None:
    for world in WORLDS:
        start, cases = _notes(attempt, "batches", world)
        for ranks in cases:
            for rank, note in enumerate(ranks):
                hint = _judge_batches(rank, world, note)
                if hint:
                    return f"{start} {hint}"
    return None


def true_batches(size: int, batch: int, rank: int, world: int, begin: int, count: int) -> list[list[int]]:
    """The batches of a rank from step `begin` on, dealt by hand from the order of the whole dataset."""
    steps = math.ceil(size / world) // batch
    dealt = []
    for step in range(begin, begin + count):
        epoch, within = divmod(step, steps)
        dealt.append(_share(size, rank, world, epoch)[within * batch : (within + 1) * batch])
    return dealt


def _share(size: int, rank: int, world: int, epoch: int) -> list[int]:
    order = torch.randperm(size, generator=torch.Generator().manual_seed(3 + epoch)).tolist()
    return (order + order[: -size % world])[rank::world]


def _judge_batches(rank: int, world: int, note: Seen) -> str | None:
    size, batch, done, got = note["size"], note["batch"], note["done"], note["got"]
    if got is None:
        return "batches() returns nothing. It should yield one batch after the other."
    case = next(case for case in BATCH_CASES if case.size == size)
    count = FIRST if not done else THEN
    steps = math.ceil(size / world) // case.batch
    right = true_batches(size, batch, rank, world, done, count)
    if got == right:
        return None
    start = f"{size} samples, batch size {batch}, so {steps} steps an epoch; after {done} steps"
    if len(got) < count:
        came = "1 batch" if len(got) == 1 else f"{len(got)} batches"
        return f"{start}, rank {rank} gets {came}, and then nothing. It should go on, epoch after epoch."
    n = next(n for n in range(count) if got[n] != right[n])
    if isinstance(got[n], str):
        return f"{start}, batches() gives rank {rank} {got[n]} in place of a batch, which is a list of sample numbers."
    wanted = "Without a stop it would have been" if done else "It should be"
    where = f"{start}, batch {n} of rank {rank} is {got[n]}. {wanted} {right[n]}."
    return f"{where} {_why_batches(got, n, note, rank, world, steps)}"


def _why_batches(got: list[list[int]], n: int, note: Seen, rank: int, world: int, steps: int) -> str:
    size, batch, done = note["size"], note["batch"], note["done"]

    def stream(begin: int) -> list[list[int]]:
        return true_batches(size, batch, rank, world, begin, n + 1)

    epoch, within = divmod(done + n, steps)
    if len(got[n]) < batch:
        return "It is the rest of an epoch, which is not full. Drop it."
    if _joined(got[n], done + n, epoch, note, rank, world):
        return "What was left of an epoch is joined with the next one. Drop it."
    if got[n] == _share(size, rank, world, epoch)[rank::world][within * batch : (within + 1) * batch]:
        return "Those are every world-th of this rank's samples. The sampler has dealt them out already."
    if not done and within and got[n] == stream(n - within + steps)[0]:
        return f"Epoch {epoch} is not over. How many samples does the sampler give each rank?"
    if done and got[n] == stream(0)[n]:
        return "It begins at the very beginning, whatever `done` says."
    if done and got[0] == stream(_as_if_whole(done, size // batch, steps))[0]:
        return f"How many steps has an epoch? Each rank has only its share of the {size} samples."
    if within and got[0] == stream(done // steps * steps)[0]:
        return "It is in the right epoch, but begins that epoch anew."
    if got[0] == stream(math.ceil(done / steps) * steps)[0] and done % steps:
        return "It leaves out the rest of the epoch."
    if got[n] in (stream(done + 1)[n], stream(max(done - 1, 0))[n]):
        return "That is one step off."
    others = {other: true_batches(size, batch, rank, world, other * steps + within, 1)[0] for other in range(12)}
    found = [other for other, one in others.items() if one == got[n] and other != epoch]
    if found:
        return f"It is from epoch {found[0]}, and this is epoch {epoch}. When is set_epoch called, and with what?"
    if n and ((epoch and not within) or got[0] == stream(done)[0]):
        return f"The first batches were right. What changes when epoch {epoch} begins?"
    return "Which epoch is it, and how many steps of it are done?"


def _joined(batch: list[int], number: int, epoch: int, note: Seen, rank: int, world: int) -> bool:
    """Is it that batch of one who takes a rank's samples of all epochs as one long row?"""
    row = [one for before in range(epoch + 1) for one in _share(note["size"], rank, world, before)]
    return batch == row[number * note["batch"] : (number + 1) * note["batch"]]


def _as_if_whole(done: int, wrong: int, steps: int) -> int:
    """The step at which one begins who takes an epoch to have as many steps as the whole dataset has batches."""
    epoch, within = divmod(done, wrong)
    return (epoch + 1) * steps if within >= steps else epoch * steps + within


# ---- 11.3: within a budget ------------------------------------------------------------------------------------------

STEPS = 45
TARGET = 0.75  # 32 images a step: 67 % at most (4 seeds, 7 learning rates); 128 images: 76 to 88 % at best
TOO_SMALL, TOO_LARGE = 0.002, 0.03  # learning rates; between them, batch and steps decide
HOLDS = {"fp32": 16, "bf16": 32}
KEYS = ("ranks", "images per rank", "learning rate", "precision")


def within_budget(answer: object) -> str | None:
    hint = _form(answer)
    if hint or not isinstance(answer, Mapping):
        return hint
    ranks, each, rate, precision = (answer[key] for key in KEYS)
    whole = ranks * each
    if each > HOLDS[precision]:
        return f"{each} images in {precision} do not fit: a rank holds {HOLDS[precision]}."
    attempt = Attempt(str(Path(__file__).with_name(BUDGET_HARNESS)))  # it is both: the harness, and what it runs
    try:
        run = attempt.run_through(BUDGET_HARNESS, str(each), str(rate), precision, str(STEPS), nproc=ranks)
        note = left_by(attempt.succeeded(run), NOTE)[0]
    except (Wrong, NotTried) as error:
        return str(error)
    finally:
        for made in attempt.runs:
            shutil.rmtree(made.log_dir, ignore_errors=True)
    reached = f"{STEPS} steps with {whole} images each: {note['right']:.1%} of the held-out digits are right"
    if note["right"] >= TARGET:
        print(f"{reached}.")
        return None
    return f"{reached}, {TARGET:.0%} is the target. {_why_short(note['losses'], whole, rate)}"


def _form(answer: object) -> str | None:
    if not isinstance(answer, Mapping) or set(answer) != set(KEYS):
        return "The choice is a dict with " + ", ".join(f'"{key}"' for key in KEYS) + "."
    if type(answer["ranks"]) is not int or answer["ranks"] not in (1, 2, 4):
        return f"ranks is {answer['ranks']!r}: 1, 2 or 4."
    if answer["precision"] not in tuple(HOLDS):
        return f'precision is {answer["precision"]!r}: "fp32" or "bf16".'
    each, rate = answer["images per rank"], answer["learning rate"]
    if not isinstance(each, int) or each < 1:
        return f"images per rank is {each!r}: a whole number, 1 or more."
    if not isinstance(rate, int | float) or not 0 < rate < 100:
        return f"learning rate is {rate!r}: a number above 0."
    return None


def _why_short(losses: list[float], whole: int, rate: float) -> str:
    if not math.isfinite(losses[-1]) or rate > TOO_LARGE:
        return f"The loss went from {losses[0]:.2f} to {losses[-1]:.2f} (up to {max(losses):.2f}): too large steps."
    if rate < TOO_SMALL:
        return f"The loss went only from {losses[0]:.2f} to {losses[-1]:.2f}: too small steps."
    if whole < 4 * HOLDS["bf16"]:
        return "The time is up. How can a step learn from more images?"
    return "No step can learn from more images here. A large batch can often take a larger learning rate."


CHECKS: dict[str, ScriptExercise | Callable[[object], str | None]] = {
    "11.1": ScriptExercise("scripts/11_step.py", as_one_process, "with 2 and 3 processes, four times each"),
    "11.2": ScriptExercise(
        "scripts/11_batches.py", goes_on_in_the_middle, "with 2 and 3 processes, stopped in eight places"
    ),
    "11.3": within_budget,
}
