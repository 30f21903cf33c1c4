"""Exercises of lesson 04: migrate a script from DataParallel to DDP, count bytes, count over all ranks.

What is right is computed here, by a training in one process and by counting, and never stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..result import Run
from .attempt import Attempt, ScriptExercise, crowd
from .note import left_by

if TYPE_CHECKING:
    import torch

MIGRATION_HARNESS, COUNTER_HARNESS = "migration_harness.py", "counter_harness.py"


# ---- 04.1: from DataParallel to DDP ---------------------------------------------------------------------------------


SAMPLES = 960
TOLERANCE = 1e-4  # of a weight; right ones agree within 1e-6, and the mistakes below are a hundred times as large


@dataclass(frozen=True)
class Trial:
    """One run of the learner's script."""

    nproc: int
    nnodes: int
    batch: int
    lr: float
    seed: int

    @property
    def world(self) -> int:
        return self.nproc * self.nnodes

    @property
    def steps(self) -> int:
        return SAMPLES // self.batch


TRIALS = (
    Trial(2, 1, 96, 0.2, 1),
    Trial(2, 2, 96, 0.15, 4),
    Trial(1, 1, 48, 0.1, 3),
    Trial(3, 1, 24, 0.05, 2),
    Trial(4, 1, 48, 0.1, 0),
)


def migrated(attempt: Attempt) -> str | None:
    """At any world size the weights of one process, each rank with its share of each step, saved once and unwrapped."""
    with tempfile.TemporaryDirectory() as folder:
        for number, trial in enumerate(TRIALS):
            path = Path(folder) / f"{number}.pt"
            args = ["--batch", trial.batch, "--lr", trial.lr, "--seed", trial.seed, "--save", path]
            run = attempt.run_through(
                MIGRATION_HARNESS, "watch", *map(str, args), nproc=trial.nproc, nnodes=trial.nnodes
            )
            seen = left_by(run, "seen.json")
            hint = (
                _judge_joining(run, seen)
                or _judge_saving(attempt.succeeded(run), seen, path)
                or _judge_shares(run, seen, trial)
                or _judge_file(run, path)
                or _judge_weights(run, seen, trial, path)
            )
            if hint:
                return hint
    return None


def _judge_joining(run: Run, seen: dict[int, dict[str, Any]]) -> str | None:
    for rank, what in sorted(seen.items()):
        if "rank" in what["wrong"]:
            return (
                f"{crowd(run)} rank {rank} (local rank {run.ranks[rank].local_rank}) would join as rank "
                f"{what['wrong']['rank']}, as another one does, and all would wait for ever. Which number counts "
                "through the whole job, and who has set it already?"
            )
        if "world_size" in what["wrong"]:
            return (
                f"{crowd(run)} rank {rank} would join a world of {what['wrong']['world_size']}, and "
                f"{len(run.ranks)} are there. Who has set the world size already?"
            )
    return None


def _judge_saving(run: Run, seen: dict[int, dict[str, Any]], path: Path) -> str | None:
    if len(run.ranks) > 1 and not any(what["joined"] for what in seen.values()):
        count = len(run.ranks)
        return (
            f"{crowd(run)} no rank joined a process group: {count} processes train {count} models and know nothing "
            "of each other. What comes before the wrapper?"
        )
    savers = [rank for rank, what in sorted(seen.items()) if what["saved"]]
    if not savers:
        return f"{crowd(run)} no rank saved the model. Which one shall, and what goes into the file?"
    if len(savers) > 1:
        return (
            f"{crowd(run)} ranks {_listed(savers)} all save, into one file: they can tear it. "
            "One rank of the whole job saves."
        )
    if not path.exists():
        return f"{crowd(run)} rank {savers[0]} saved to {seen[savers[0]]['saved'][-1]!r}, not to where --save says."
    return None


def _judge_shares(run: Run, seen: dict[int, dict[str, Any]], trial: Trial) -> str | None:
    """Whether each rank computed its share of each step, and all of them together the step's samples."""
    share = trial.batch // trial.world
    sizes = {rank: [size for size, _ in what["batches"]] for rank, what in seen.items()}
    for rank, mine in sorted(sizes.items()):
        if mine == [share] * trial.steps:
            continue
        step, data = f"{share} samples in each of {trial.steps} steps", f"{crowd(run)} rank {rank}"
        if mine == [trial.batch] * trial.steps:
            return f"{data} computes all {trial.batch} samples of every step, as all others do. Who cuts the batch now?"
        if set(mine) == {trial.batch}:
            return (
                f"{data} takes {trial.batch} samples a step, so that a step has {trial.batch * trial.world} in all, "
                f"and DataParallel had {trial.batch}. Whose batch is a DataLoader's batch_size?"
            )
        marks = [mark for _, mark in seen[rank]["batches"]]
        rounds = len(mine) // trial.steps
        if set(mine) == {share} and rounds > 1 and marks == marks[: trial.steps] * rounds:
            return f"{data} goes through its share {rounds} times. How often did DataParallel see each sample?"
        if set(mine) == {share} and len(mine) == trial.steps * trial.world:
            return (
                f"{data} goes through all {sum(mine)} samples, {share} at a time: {len(mine)} steps in place of "
                f"{trial.steps}. The batch is divided; who divides the data?"
            )
        return (
            f"{data} computed {len(mine)} batches with {_listed(sorted(set(mine)))} samples, and its share is {step}."
        )
    return _judge_samples(run, seen, trial)


def _judge_samples(run: Run, seen: dict[int, dict[str, Any]], trial: Trial) -> str | None:
    marks = {rank: [mark for _, mark in what["batches"]] for rank, what in sorted(seen.items())}
    for rank, mine in marks.items():
        twins = [other for other in marks if other < rank and marks[other] == mine]
        if twins:
            return (
                f"{crowd(run)} ranks {twins[0]} and {rank} compute the same samples in every step, and others are "
                "never seen. Which number makes a rank's share its own, on any number of machines?"
            )
    images, _ = _digits()
    for step in range(trial.steps):
        wanted = images[step * trial.batch : (step + 1) * trial.batch].double().sum().item()
        if abs(sum(mine[step] for mine in marks.values()) - wanted) > 1e-6:
            return (
                f"{crowd(run)} in step {step} the ranks together take other samples than DataParallel did: it took "
                f"samples {step * trial.batch} to {(step + 1) * trial.batch - 1} of the file. "
                "Deal each step's samples to the ranks, unshuffled."
            )
    return None


def _judge_file(run: Run, path: Path) -> str | None:
    state = _load(path)
    names = list(state) if isinstance(state, dict) else []
    if names == list(_train(Trial(1, 1, SAMPLES, 0.0, 0))):
        return None
    if names and all(str(name).startswith("module.") for name in names):
        return (
            f"{crowd(run)} the names in the file are {names[0]!r} and so on, and a plain model asks for "
            f"{names[0].removeprefix('module.')!r}. What is inside the wrapper?"
        )
    what = f"the names {_listed(names)}" if names else f"a {type(state).__name__}"
    return f"{crowd(run)} a plain model cannot load the file: it holds {what}. Save a state_dict."


def _judge_weights(run: Run, seen: dict[int, dict[str, Any]], trial: Trial, path: Path) -> str | None:
    for rank, what in sorted(seen.items()):
        apart = [abs(a - b) for a, b in zip(what["weight"], seen[0]["weight"], strict=True)]
        if max(apart) > TOLERANCE:
            return (
                f"{crowd(run)} ranks 0 and {rank} end with different models (the sums over a row of the first layer "
                f"differ by up to {max(apart):.3g}). Each has learned from its own share alone. "
                "What averages the gradients, and is it what you call?"
            )
    saved = _load(path)
    right = _train(trial)
    if _close(saved, right):
        return None
    for factor, story in (
        (trial.world, "multiplied: DDP's average is already the gradient of the whole batch"),
        (1 / trial.world, "divided: DDP has averaged already"),
    ):
        if _close(saved, _train(trial, factor)):
            return f"{crowd(run)} the weights are those of a learning rate times {factor:g}. Something is {story}."
    if _close(saved, _train(Trial(1, 1, trial.batch, 0.0, trial.seed))):
        return f"{crowd(run)} the saved weights are those from before the training."
    name = max(right, key=lambda key: float((saved[key] - right[key]).abs().max()))
    apart_by = float((saved[name] - right[name]).abs().max())
    return (
        f"{crowd(run)} a weight of {name!r} differs by {apart_by:.3g} from one process with the whole batch "
        f"(--batch {trial.batch} --lr {trial.lr} --seed {trial.seed}). Which line of the script is not as it was?"
    )


def _train(trial: Trial, factor: float = 1.0) -> dict[str, torch.Tensor]:
    """The truth: one process, the whole batch, gradient descent by hand."""
    import torch
    from torch.nn.functional import cross_entropy

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.seed)
        first, last = torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)
    weights = [*first.parameters(), *last.parameters()]
    images, labels = _digits()
    for start in range(0, SAMPLES if trial.lr else 0, trial.batch):
        part = slice(start, start + trial.batch)
        outputs = torch.relu(images[part] @ weights[0].T + weights[1]) @ weights[2].T + weights[3]
        gradients = torch.autograd.grad(cross_entropy(outputs, labels[part]), weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= factor * trial.lr * gradient
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    return {name: weight.detach() for name, weight in zip(names, weights, strict=True)}


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    import numpy as np
    import torch

    digits = np.load("../data/digits.npz")
    images = torch.tensor(digits["images"]).float().flatten(1)[:SAMPLES] / 16
    return images, torch.tensor(digits["labels"]).long()[:SAMPLES]


def _load(path: Path) -> Any:
    import torch

    return torch.load(path, map_location="cpu", weights_only=False)  # written by the learner's own run


def _close(saved: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(
        saved[name].shape == right[name].shape and float((saved[name] - right[name]).abs().max()) < TOLERANCE
        for name in right
    )


# ---- 04.2: the bytes of a step --------------------------------------------------------------------------------------


GPUS, PARAMETERS, IMAGES, PIXELS, CLASSES = 8, 25_557_032, 3200, 3 * 224 * 224, 1000
FLOAT = 4


@dataclass(frozen=True)
class Part:
    """Something that DataParallel moves: how many numbers in all, and how often too many in a typical mistake."""

    name: str
    numbers: float
    too_much: float
    question: str


PARTS = (
    Part("the inputs", IMAGES * PIXELS * (GPUS - 1) / GPUS, GPUS / (GPUS - 1), "Where does the batch lie at first?"),
    Part("the parameters", (GPUS - 1) * PARAMETERS, GPUS / (GPUS - 1), "What does a replica need before its forward?"),
    Part("the outputs", IMAGES * CLASSES * (GPUS - 1) / GPUS, GPUS / (GPUS - 1), "Where is the loss computed?"),
    Part(
        "the outputs' gradients",
        IMAGES * CLASSES * (GPUS - 1) / GPUS,
        GPUS / (GPUS - 1),
        "The loss is on GPU 0: what does a replica need before its backward?",
    ),
    Part("the gradients", (GPUS - 1) * PARAMETERS, GPUS / (GPUS - 1), "Where does the optimizer step?"),
)
TWINS = (
    ("the parameters", "the gradients", "What goes out before the forward, and what comes back after the backward?"),
    (
        "the outputs",
        "the outputs' gradients",
        "The loss is on GPU 0: what comes there, and what goes back before backward?",
    ),
)


def predicted_bytes(answer: object) -> str | None:
    """The bytes of one step, for DataParallel in all and for DDP from each rank."""
    if not isinstance(answer, dict) or set(answer) != {"DataParallel", "DDP"}:
        return 'The answer is a dict with two numbers: {"DataParallel": …, "DDP": …}.'
    for name, value in answer.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{name}: the answer is a number of bytes; yours is {value!r}."
    return _judge_dataparallel(float(answer["DataParallel"])) or _judge_ddp(float(answer["DDP"]))


def _judge_dataparallel(value: float) -> str | None:
    right = FLOAT * sum(part.numbers for part in PARTS)
    if _same(value, right):
        return None
    if _same(value, right / FLOAT):
        return f"DataParallel: {value:,.0f} numbers, that is right. How many bytes has a float32?"
    # Each part is missing, right or counted with all 8 GPUs: which combination makes this sum, with fewest mistakes?
    for factors in sorted(product(*((1.0, part.too_much, 0.0) for part in PARTS)), key=lambda each: -each.count(1.0)):
        if _same(value, FLOAT * sum(f * part.numbers for f, part in zip(factors, PARTS, strict=True))):
            return _hint_for_parts(factors)
    side = "too few" if value < right else "too many"
    return (
        f"DataParallel: {value:,.0f} bytes are {side}, and they are no sum of the five things that move. "
        "List what goes out from GPU 0, and what comes back."
    )


def _hint_for_parts(factors: Sequence[float]) -> str:
    missing = [part for factor, part in zip(factors, PARTS, strict=True) if factor == 0.0]
    if missing:
        names = [part.name for part in missing]
        for one, other, question in TWINS:
            if (one in names) != (other in names):  # equally large: which one was meant is not known
                found = one if one in names else other
                names[names.index(found)] = f"{one} or {other}"
                return f"DataParallel: there are missing: {_listed(names)}. {question}"
        return f"DataParallel: there are missing: {_listed(names)}. {missing[0].question}"
    whole = next(part for factor, part in zip(factors, PARTS, strict=True) if factor != 1.0)
    return (
        f"DataParallel: {whole.name} are counted for all {GPUS} GPUs. Which GPU has its share already, "
        "so that nothing has to travel?"
    )


def _judge_ddp(value: float) -> str | None:
    size = FLOAT * PARAMETERS
    right = 2 * (GPUS - 1) / GPUS * size
    stories = (
        (right / FLOAT, "numbers, that is right. How many bytes has a float32?"),
        (GPUS * right, f"bytes are what all {GPUS} ranks send together. Asked is: each of them."),
        (right / 2, "bytes are half of it: the ring goes round twice, once to add up and once to hand out the sum."),
        (2 * size, f"bytes are nearly right. A rank sends {GPUS - 1} of {GPUS} pieces in each round; which one stays?"),
        (size, "bytes are one copy of the gradients. How many times does the ring go round, with how many pieces?"),
        ((GPUS - 1) * size, "bytes would be a copy to each of the others. A ring only ever sends to one neighbour."),
        (
            2 * (GPUS - 1) * size,
            "bytes are what goes through GPU 0 with DataParallel. What does a rank of a ring send?",
        ),
    )
    if _same(value, right):
        return None
    for wrong, story in stories:
        if _same(value, wrong):
            return f"DDP: {value:,.0f} {story}"
    return (
        f"DDP: {value:,.0f} bytes, and the gradients have {size:,.0f}. With N ranks, a ring sends N - 1 of N pieces, "
        "twice; and with DDP no inputs and no outputs travel."
    )


def _same(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= 1e-6 * wanted


# ---- 04.3: a counter over all ranks ---------------------------------------------------------------------------------


def counted_everything(attempt: Attempt) -> str | None:
    """`seen` counts the samples of all ranks in training, is the same everywhere, and is saved with the model."""
    for nproc in (2, 1, 3, 4):
        run = attempt.succeeded(attempt.run_through(COUNTER_HARNESS, "train", nproc=nproc))
        found = left_by(run, "seen.json")
        hint = _judge_count(run, found) or _judge_evaluation(run, found)
        if hint:
            return hint
    return None


def _judge_count(run: Run, found: dict[int, dict[str, Any]]) -> str | None:
    trained = [found[rank]["trained"] for rank in sorted(found)]
    sizes = [found[rank]["sizes"] for rank in sorted(found)]
    truth = sum(map(sum, sizes))
    if trained == [truth] * len(trained):
        return None
    for rank, value in enumerate(trained):
        if value is None:
            return f"{crowd(run)} the model of rank {rank} has no attribute `seen`."
        if isinstance(value, str):
            return f"{crowd(run)} rank {rank} has seen = {value}, which is no number of samples."
    start = f"{crowd(run)} {truth} samples were trained on, and seen is {_listed(trained)} (rank by rank)."
    return f"{start} {_why(trained, sizes)}"


def _why(trained: list[int], sizes: list[list[int]]) -> str:
    """Which way of counting gives these numbers?"""
    world, steps = len(sizes), len(sizes[0])
    own = [sum(mine) for mine in sizes]
    kept = [sum(sizes[0][:-1]) + mine[-1] for mine in sizes]  # rank 0's buffer, copied to all, and the last batch
    again = 0
    for step in range(steps):
        again = world * again + sum(mine[step] for mine in sizes)
    if not any(trained):
        return "Nothing is counted."
    if trained == [steps] * world or trained == [steps * world] * world:
        return "Steps are counted. How many samples has a batch?"
    if trained == own:
        return "Each rank counts its own. How do ranks make one number of many?"
    if trained == kept:
        return (
            f"Rank 1 has what rank 0 had counted before, and its own last batch of {sizes[1][-1]}: before each "
            "forward, DDP copies rank 0's buffers to all. What must be the same on all ranks before it is added?"
        )
    if trained == [again] * world:
        return "What was added up before is added again in every step. What do you reduce: the count, or the batch?"
    if trained in ([world * mine for mine in own], [world * mine for mine in kept]):
        return (
            "A rank's own count times the world size is right only when all batches have the same size. Ask the others."
        )
    if len(set(trained)) > 1:
        return "The ranks do not agree. What does each of them add, and in which step?"
    return "All ranks agree, on a wrong number. What is counted twice, or not at all?"


def _judge_evaluation(run: Run, found: dict[int, dict[str, Any]]) -> str | None:
    for rank, what in sorted(found.items()):
        if what["evaluated"] != what["trained"]:
            return (
                f"{crowd(run)} after a batch in evaluation (model.eval(), gradients enabled) seen "
                f"went from {what['trained']} to {what['evaluated']} on rank {rank}. "
                "How does a module know that it is being trained?"
            )
        if what["loaded"] != what["trained"]:
            return (
                f"{crowd(run)} rank {rank} saved state_dict() with seen = {what['trained']}, and the model that "
                f"loaded it has {what['loaded']}. What does a module save besides its parameters?"
            )
    return None


def _listed(items: Sequence[object]) -> str:
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


CHECKS = {
    "04.1": ScriptExercise(
        "scripts/04_digits_ddp.py",
        migrated,
        "with 1, 2, 3 and 4 processes and on 2 nodes with 2 each, and its weights are those of one process",
    ),
    "04.2": predicted_bytes,
    "04.3": ScriptExercise("scripts/04_counter.py", counted_everything, "with 1, 2, 3 and 4 processes"),
}
