"""Exercises of lesson 08: resume to the bit after a kill, an exact accuracy, early stopping that all ranks agree on.

The scripts are read by resuming_harness.py, which calls what they define with data that they don't know. The truths:
the same training without a stop (08.1), the mean over the dataset (08.2), the losses of all samples in one list (08.3).
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..result import Run
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .note import left_by
from .resuming_harness import KILLED_IN, SCENARIOS, Scenario, hits, share

HARNESS, NOTE = "resuming_harness.py", "resuming.json"
WORLDS = (2, 1, 3)
# From three ranks on, a resumed training adds up the gradients of its first step in another order: DDP sorts its
# buckets after the first step only (Reducer::should_rebuild_buckets in torch/csrc/distributed/c10d/reducer.hpp).
SUMMED_IN_ANOTHER_ORDER = 1e-3

Note = dict[str, Any]


def _run_cases(attempt: Attempt, mode: str, nproc: int, when: Callable[[Note], str]) -> tuple[Run, list[Note]]:
    """Call what the script defines, case by case; where that fails or hangs, the hint names ranks without samples."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = attempt.run_through(HARNESS, mode, folder, nproc=nproc)
            return run, _succeeded(attempt, run, when)
        except Wrong as wrong:
            empty = sorted(int(file.name) for file in Path(folder).iterdir())
            if not empty:
                raise
            ranks = f"Rank{'s' * (len(empty) > 1)} {_listed([str(rank) for rank in empty])}"
            raise Wrong(f"{wrong}\n{ranks} had no samples there.", wrong.failure) from None


def _succeeded(attempt: Attempt, run: Run, when: Callable[[Note], str]) -> list[Note]:
    """The notes of all ranks; Wrong when a rank failed, with what `when` makes of its note."""
    notes = left_by(run, NOTE)
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        note = notes.get(run.failure.rank, {}) if run.failure else {}
        aborted = run.failure is not None and run.failure.exception_type == "SIGABRT"
        why = "\nDo the ranks give a collective tensors of different lengths (lesson 02)?" if aborted else ""
        raise Wrong(f"{wrong}{when(note)}{why}", wrong.failure) from None
    return [notes[rank] for rank in sorted(notes)]


# ---- 08.1: nobody can tell ------------------------------------------------------------------------------------------


def goes_on_to_the_bit(attempt: Attempt) -> str | None:
    """Train, be killed, train on: once in the middle of an epoch, once in the middle of a save."""
    for nproc, kill in ((2, "step"), (3, "save")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            hint, killed = _first_part(attempt, folder, kill, nproc)
            if killed:
                hint = _second_part(attempt, folder, kill, nproc)
        if hint:
            return hint
    return None


def _first_part(attempt: Attempt, folder: Path, kill: str, nproc: int) -> tuple[str | None, bool]:
    """The attempt that our kill ends: a hint, and whether the kill came. It may miss a way to write a file."""
    run = attempt.run_through(HARNESS, "train", str(folder), kill, "now", nproc=nproc)
    notes = list(left_by(run, NOTE).values())
    hint = _judge_writers(run, notes) or _judge_done(f"{crowd(run)} and no file yet,", left_by(run, NOTE))
    if hint:
        return hint, False
    if not list(folder.glob("expected_*")) and run.failure is None:
        return f"With {nproc} processes, resume() did not return 0 when there was no file yet.", False
    if run.failure is None:
        return _judge_in_place(run, notes), False
    if run.failure.exception_type != "SIGKILL":
        _succeeded(attempt, run, lambda note: "\nThat was before any kill, in a training that begins without a file.")
    return None, True


def _judge_done(start: str, notes: dict[int, Note]) -> str | None:
    """All ranks must have got the same answer from resume()."""
    done = [(rank, note["done"]) for rank, note in sorted(notes.items()) if "done" in note]
    for rank, answer in done:
        if answer != done[0][1]:
            return (
                f"{start} resume() returned {done[0][1]} on rank {done[0][0]} and {answer} on rank {rank}. All ranks "
                "must begin at the same epoch."
            )
    return None


def _judge_in_place(run: Run, notes: Sequence[Note]) -> str | None:
    if any(any(note.get("in_place", [])) for note in notes):
        return (
            f"{crowd(run)} the file at path was written over in place: it kept its place on the disk. A kill in "
            "between costs the old one and the new one. When may the old file give up its name?"
        )
    return None


def _judge_writers(run: Run, notes: Sequence[Note]) -> str | None:
    """No two ranks may write the same file, or give a file its name. A rank that was killed has left no note."""
    writers = Counter(path for note in notes for path in set(note.get("saved", [])))
    twice = [Path(path).name for path, ranks in writers.items() if ranks > 1]
    if twice:
        return f"{crowd(run)} {max(writers.values())} ranks write {twice[0]}, or rename onto it. One file, one writer."
    return None


def _second_part(attempt: Attempt, folder: Path, kill: str, nproc: int) -> str | None:
    where = f"the middle of epoch {KILLED_IN[kill]}" if kill == "step" else "the middle of a save"
    run = attempt.run_through(HARNESS, "train", str(folder), kill, "before", nproc=nproc)
    notes = _resumed(attempt, run, kill)
    start = f"{crowd(run)} killed in {where} and resumed:"
    apart = _judge_done(start, dict(enumerate(notes)))
    if apart:
        return apart
    for rank, note in enumerate(notes):
        hint = _judge_resumed(rank, note, kill)
        if hint:
            return f"{start} {hint}"
    if any(note["elsewhere"] for note in notes):
        return (
            f"{crowd(run)} the temporary file lies in another folder than path. On another disk os.replace fails, and "
            "shutil.move copies, which a kill can tear. Put it beside path."
        )
    hint = _judge_writers(run, notes) or (_judge_in_place(run, notes) if kill == "save" else None)
    if hint:
        return hint
    early = [rank for note in notes for rank in note["early"]]
    if early:
        return (
            f"{crowd(run)} and a slow disk, save() has returned on rank {early[0]} before the file was there. What "
            "would that rank find at path?"
        )
    gap = max(note["gap"] for note in notes)
    if gap > (0 if nproc <= 2 else SUMMED_IN_ANOTHER_ORDER):
        return f"{start} all was restored, and yet the weights at the end are not those of a training without a stop."
    return None


def _resumed(attempt: Attempt, run: Run, kill: str) -> list[Note]:
    failure = run.failure
    try:
        return _succeeded(attempt, run, lambda note: "\nThat was after a kill.")
    except Wrong as wrong:
        why, first = "", str(wrong).splitlines()[0]
        if failure is not None and failure.message.startswith("Weights only load failed") and kill == "step":
            first = (
                first.partition(" Weights only load failed")[0] + " The file holds more than tensors and plain values."
            )
            why = "Save state_dict()s, and not the objects."
        elif failure is not None and failure.exception_type == "SIGSEGV":
            why = (
                "torch.set_rng_state crashes where a state is a row of a larger tensor. Save a list of states, or "
                ".clone() the row."
            )
        elif failure is not None and kill == "save" and "done" not in left_by(run, NOTE).get(failure.rank, {}):
            why = (
                "That was after a kill in the middle of a save. The file at path is torn, and the one before it is "
                "gone. When may the old file give up its name?"
            )
        if why:
            raise Wrong(f"{first}\n{why}", wrong.failure) from None
        raise


PIECES = {
    "model": "the model's weights are",
    "optimizer": "the optimizer's state is",
    "scheduler": "the scheduler's state is",
    "random": "torch's random state is",
}


def _judge_resumed(rank: int, note: Note, kill: str) -> str | None:
    done, wrong, epochs = note["done"], note["wrong"], KILLED_IN[kill]
    if note["names"] == "no file":
        if done:
            return "there is no file at path. Others look there."
        if kill == "step":
            return f"save() was called {epochs} times, and there is no file at path."
        return "the old file was gone before the new one was there, and the training begins anew."
    if done != epochs:
        return (
            f"resume() returned {done} on rank {rank}. When the last whole checkpoint was saved, {epochs} epochs "
            "were done."
        )
    if note["names"] == "wrapped":
        return 'the weights in the file have names that begin with "module.": a plain model cannot load them.'
    if note["names"] == "unreadable" and kill == "save":
        return (
            "the file at path is torn, and stays so until the next save. A plain model looks at path, and not at your "
            "other files."
        )
    if note["names"] == "unreadable":
        return "torch.load cannot read the file at path, and a plain model has to. Write it with torch.save."
    if note["names"] == "none":
        return "the file holds no state_dict() that a plain model could load."
    for piece, words in PIECES.items():
        if piece not in wrong:
            continue
        if wrong[piece] == "rank 0's":
            return f"rank {rank} has rank 0's random state: both drop the same units from now on. Whose are saved?"
        if wrong[piece] == "later":
            return (
                f"{words} that of {epochs + 1} epochs on rank {rank}, where {epochs} were done: your files are of "
                "different epochs. One checkpoint, one file."
            )
        as_new = "as new" if wrong[piece] == "fresh" else "not what it was"
        others = [PIECES[other] for other in wrong if other != piece and wrong[other] != "rank 0's"]
        also = f" Look also at what {others[0].rsplit(' ', 1)[0]} does." if others else ""
        return f"{words} {as_new} on rank {rank}.{also}"
    return None


# ---- 08.2: exact at any world size ----------------------------------------------------------------------------------


def exact_everywhere(attempt: Attempt) -> str | None:
    """Every rank gets the mean over the dataset, however the samples are shared out."""
    for nproc in WORLDS:
        run, notes = _run_cases(attempt, "accuracy", nproc, partial(_in_sharing, world=nproc))
        for cases in zip(*(note["cases"] for note in notes), strict=True):
            hint = _judge_values(list(cases))
            if hint:
                return f"{crowd(run)} {hint}"
    return None


def _shares(case: Note, world: int) -> list[list[int]]:
    return [share(case["kind"], case["size"], rank, world) for rank in range(world)]


def _in_sharing(note: Note, world: int) -> str:
    if not note.get("cases"):
        return ""
    case = note["cases"][-1]
    return f"\nThat was where {_dealt(_shares(case, world))}."


def _dealt(shares: list[list[int]]) -> str:
    counts = [str(len(numbers)) for numbers in shares]
    if len(counts) == 1:
        return f"the rank has {counts[0]} samples"
    return f"the ranks have {', '.join(counts[:-1])} and {counts[-1]} samples"


def _judge_values(cases: list[Note]) -> str | None:
    size, values = cases[0]["size"], [case["value"] for case in cases]
    right, shares = hits(size), _shares(cases[0], len(cases))
    truth = sum(right) / size
    if all(value is not None and abs(value - truth) < 1e-6 for value in values):
        return None
    nothing = [rank for rank, value in enumerate(values) if value is None]
    if nothing:
        return f"rank {nothing[0]} gets no number. Every rank should: the next decision is taken by all."
    case = f"where {_dealt(shares)} of {size}"
    shown = _listed([f"{value:.4f}" for value in values])
    own = [_mean([right[n] for n in numbers]) for numbers in shares]
    if len(values) > 1 and _alike(values, own):
        return f"{case}, the ranks return {shown}: each the accuracy of its own samples. The truth is {truth:.4f}."
    if any(map(math.isnan, values)):
        return f"{case}, the result is nan. What does a rank without samples add?"
    if max(values) - min(values) > 1e-6:
        return f"{case}, the ranks return {shown}. They should all return {truth:.4f}."
    return f"{case}, {values[0]:.4f} comes out where {truth:.4f} is true. {_why(values[0], shares, right, own)}"


def _why(value: float, shares: list[list[int]], right: list[bool], own: list[float]) -> str:
    size, everything = len(right), [n for numbers in shares for n in numbers]
    twice, counted = len(everything) - size, [right[n] for n in everything]
    guesses = [
        (
            _mean(counted),
            f"{twice} of the samples counted are duplicates. (Tensors are never equal as keys of a dict or a set: "
            ".tolist() first.)",
        ),
        (sum(counted) / size, "Duplicates are among the hits, and not in what you divide by."),
        (_mean(counted[:size]), "What you cut off are not the duplicates: those may stand anywhere."),
        (
            _mean(own),
            "It is the mean of the ranks' accuracies: a rank with few samples weighs as much as one with many.",
        ),
        (sum(right) / size / len(shares), f"That is {len(shares)} times too little. What is divided twice?"),
    ]
    found = [text for guess, text in guesses[0 if twice else 3 :] if abs(guess - value) < 1e-6]
    return found[0] if found else "Which samples count how often?"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _alike(values: Sequence[float], others: Sequence[float]) -> bool:
    return all(abs(a - b) < 1e-6 or (math.isnan(a) and math.isnan(b)) for a, b in zip(values, others, strict=True))


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# ---- 08.3: stop together, at the right time -------------------------------------------------------------------------


def stops_with_the_truth(attempt: Attempt) -> str | None:
    """Up to the first stop, every rank says after each epoch what one process with all samples would say."""
    for nproc in WORLDS:
        run, notes = _run_cases(attempt, "stopping", nproc, _in_scenario)
        for scenario, *cases in zip(SCENARIOS, *(note["cases"] for note in notes), strict=True):
            hint = _judge_said(scenario, cases)
            if hint:
                return f"{crowd(run)} {hint}"
    return None


def _in_scenario(note: Note) -> str:
    case = (note.get("cases") or [{}])[-1]
    if "said" not in case:
        return ""
    return f"\nThat was in epoch {len(case['said'])}, counted from 0."


def one_process(
    scenario: Scenario,
    losses: Sequence[float],
    keep_waiting: bool = False,
    previous: bool = False,
    ties: bool = False,
    late: int = 0,
) -> int:
    """After how many epochs one process stops; 0 for never. The options are four well-known mistakes."""
    best, waited = math.inf, 0
    for epoch, loss in enumerate(losses):
        if loss < best or (ties and loss == best):
            best, waited = loss, waited if keep_waiting else 0
        else:
            waited += 1
            best = loss if previous else best
        if waited >= scenario.patience + late:
            return epoch + 1
    return 0


def _totals(scenario: Scenario) -> list[tuple[float, int]]:
    """For each epoch the sum of all losses, and the number of samples."""
    everything = [(means, scenario.sizes_in(epoch)) for epoch, means in enumerate(scenario.means)]
    return [(math.fsum(map(math.prod, zip(means, sizes, strict=True))), sum(sizes)) for means, sizes in everything]


def _of_all(scenario: Scenario) -> list[float]:
    return [total / count for total, count in _totals(scenario)]


def _per_rank(scenario: Scenario, world: int) -> list[list[float]]:
    """The mean losses of each rank's own samples; nan for a rank that has none."""
    parts = [[part for part in range(3) if part % world == rank] for rank in range(world)]
    return [
        [
            _mean([means[part] for part in mine for _ in range(scenario.sizes_in(epoch)[part])])
            for epoch, means in enumerate(scenario.means)
        ]
        for mine in parts
    ]


def _judge_said(scenario: Scenario, cases: list[Note]) -> str | None:
    truth = one_process(scenario, _of_all(scenario))
    until = truth or len(scenario.means)
    said = [case["said"][:until] for case in cases]
    if any(value is None for of_rank in said for value in of_rank):
        return "should_stop returns None. It should return True or False."
    stops = [of_rank.index(True) + 1 if True in of_rank else 0 for of_rank in said]
    if stops == [truth] * len(stops):
        return None
    losses = ", ".join(f"{loss:.3g}" for loss in _of_all(scenario)[:until])
    case = f"with patience={scenario.patience} and the mean losses {losses}"
    should = f"It should be {_after(truth)}."
    if len(set(stops)) > 1:
        return (
            f"{case}, the ranks stop apart: " + ", ".join(f"rank {r} {_after(s)}" for r, s in enumerate(stops)) + f". "
            f"{should} From whose loss does each decide?"
        )
    everything = cases[0]["said"]  # the epochs after the right one tell mistakes apart
    ever = everything.index(True) + 1 if True in everything else 0
    when = f"stop {_after(stops[0])}" if stops[0] else "have not stopped yet"
    return f"{case}, you {when}. {should} {_why_stop(scenario, len(cases), ever)}"


def _after(epochs: int) -> str:
    return f"after {epochs} epoch{'s' * (epochs != 1)}" if epochs else "not at all yet"


def _why_stop(scenario: Scenario, world: int, stop: int) -> str:
    if scenario.stored_after >= 0:
        return (
            f"After epoch {scenario.stored_after} everything went through state_dict() into a new object. What does it "
            "have to remember?"
        )
    losses, per_rank = _of_all(scenario), _per_rank(scenario, world)
    means, sums = [_mean(values) for values in zip(*per_rank, strict=True)], [total for total, _ in _totals(scenario)]
    guesses: list[tuple[str, Sequence[float], dict[str, Any]]] = [
        ("There a loss that only equals the best one is taken for a better one.", losses, {"ties": True}),
        ("Does the waiting begin anew after an improvement?", losses, {"keep_waiting": True}),
        ("Better than the last one, or than the best one?", losses, {"previous": True}),
        ("How many epochs without an improvement are too many?", losses, {"late": 1}),
        ("That is the mean of the ranks' means: they have different numbers of samples.", means, {}),
        (
            "That is when rank 0's own loss would say so. Put the losses of all ranks together, and decide after that.",
            per_rank[0],
            {},
        ),
        ("The sum of the losses grows with the samples. What do you divide by?", sums, {}),
    ]
    for text, candidate, options in guesses:
        if one_process(scenario, candidate, **options) == stop:
            return text
    if max(losses) < 1:
        return "Are the losses cut to whole numbers on the way? See the dtype of your tensor."
    return "Count the epochs in a row that brought no loss below the best one."


CHECKS = {
    "08.1": ScriptExercise(
        "scripts/08_resume.py",
        goes_on_to_the_bit,
        "with 2 processes, killed in the middle of an epoch, and with 3, killed in the middle of a save; all "
        "was restored, and the weights at the end are those of a training without a stop",
    ),
    "08.2": ScriptExercise(
        "scripts/08_accuracy.py",
        exact_everywhere,
        "with 1 to 3 processes, with 1 to 12 samples that were shared out in five ways",
    ),
    "08.3": ScriptExercise(
        "scripts/08_early_stopping.py",
        stops_with_the_truth,
        "with 1 to 3 processes and the losses of ten trainings, two of them stopped and resumed",
    ),
}
