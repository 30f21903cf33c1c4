"""Exercises of lesson 09: the clinic. Eight scripts, mended, must end well and compute what one process computes.

Each check runs the learner's script within clinic_harness.py, at three world sizes, with the digits in another order at
every call. A hint says what is still wrong, and where a usual cure was tried, why that one does not help.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..command import Command
from ..environment import SUBJECT
from ..launch import Options, run
from ..result import RankFailed, Run, RunTimeout
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .clinic import HARNESS, PATIENTS
from .note import left_by

SOON = 2  # seconds after which it is asked who waits for whom; a right answer takes a fraction of one
FOR_GOOD = ("Ranks call ", "wait for each other", "will not come any more")  # what no busy machine makes
SAME = 6e-5  # sums in another order differ in the last digits of a float32, and some print four digits only
Seen = dict[str, Any]


@dataclass(frozen=True)
class Cure:
    """How a mended script is judged: at which world sizes, what is said of a failure, and by `judge` of its results."""

    patient: int
    worlds: tuple[int, ...]
    failed: str
    judge: Callable[[Run, dict[int, Seen]], str | None]

    def __call__(self, attempt: Attempt) -> str | None:
        text = Path(attempt.script).read_text(encoding="utf-8")
        if text.strip() == PATIENTS[self.patient].text.strip():
            return "This is the script as it came in: nothing in it was changed yet."
        work: dict[int, int] = {}
        for world in self.worlds:
            try:
                done, seen = _seen(attempt, self.patient, world)
            except Wrong as wrong:
                raise Wrong(
                    "\n".join([str(wrong), self.failed, *_remarks(text, self.patient)]), wrong.failure
                ) from None
            hint = self.judge(done, seen)
            if hint:
                return "\n".join([hint, *_remarks(text, self.patient)])
            work[world] = sum(note["samples"] for note in seen.values())
        return _shared(work)


# ---- running --------------------------------------------------------------------------------------------------------


def _seen(attempt: Attempt, patient: int, world: int) -> tuple[Run, dict[int, Seen]]:
    """Run the script in the harness; Wrong when it fails, or hangs for good."""
    seed = str(random.randrange(1_000_000))
    done = attempt.succeeded(
        _quickly(attempt, patient, seed, world) or attempt.run_through(HARNESS.name, str(patient), seed, nproc=world)
    )
    seen = left_by(done, "seen.json")
    silent = next((rank.rank for rank in done.ranks if rank.rank not in seen), None)
    if silent is not None:
        raise Wrong(f"{crowd(done)} rank {silent} did not come to the end of the script, although its exit code is 0.")
    return done, seen


def _quickly(attempt: Attempt, patient: int, seed: str, world: int) -> Run | None:
    """A run that is stopped soon. None if its ranks might have gone on by themselves: the machine may be busy."""
    subject = str(Path(attempt.script).resolve())
    command = Command(str(HARNESS), (str(patient), subject, seed), world)
    env = {"OMP_NUM_THREADS": "1", SUBJECT: subject}
    try:
        done = run(command, Options(timeout=SOON, env=env, cell=True, silent=True))
    except RunTimeout as stopped:
        where = str(stopped).partition("\n")[2]
        if stopped.run.ranks and any(words in where for words in FOR_GOOD):
            raise Wrong(f"{crowd(stopped.run)} the script hangs. {where}") from None
        return None
    except RankFailed as failed:
        done = failed.run
    attempt.runs.append(done)
    return done


# ---- what was tried -------------------------------------------------------------------------------------------------

TRY = "try/except keeps one rank going, without the call that the others wait for."
SLEEP = "A sleep only makes all of it later: nobody is too fast here."
LONGER = "A longer timeout changes when it fails, not whether. (The check waits as long as it takes, whatever you set.)"
BARRIER = "A barrier is one more call that all must make, and it carries no number from one rank to another."


def _remarks(text: str, patient: int) -> Iterable[str]:
    """A word on each usual cure that is in the script now and was not in it when it came in."""
    now, before = _tried(text), _tried(PATIENTS[patient].text)
    for what, remark in (("try", TRY), ("sleep", SLEEP), ("seconds", LONGER), ("barrier", BARRIER)):
        if now.get(what, 0) > before.get(what, 0):
            yield remark


def _tried(text: str) -> dict[str, float]:
    """How many try statements, sleeps and barriers a script has, and how long a timeout, in seconds."""
    found: dict[str, float] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Try):
            found["try"] = found.get("try", 0) + 1
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in ("sleep", "barrier", "monitored_barrier"):
            name = name.removeprefix("monitored_")
            found[name] = found.get(name, 0) + 1
        if name == "timedelta":
            units = {"seconds": 1, "minutes": 60, "hours": 3600}
            given = [(units.get(k.arg or "", 0), k.value) for k in node.keywords]
            seconds = [unit * v.value for unit, v in given if isinstance(v, ast.Constant) and isinstance(v.value, int)]
            found["seconds"] = max([found.get("seconds", 0), *seconds])
    return found


# ---- what came out --------------------------------------------------------------------------------------------------


def _on_others(done: Run) -> str:
    """Before numbers that nobody has seen: they are not those of the learner's own run."""
    return f"{crowd(done)} on digits in another order,"


def _printed(done: Run, name: str) -> float | None:
    values = [metric[name] for metric in done.metrics if metric["rank"] == 0 and name in metric]
    return values[-1] if values else None


def _number(done: Run, seen: dict[int, Seen], name: str, hints: dict[str, str], other: str) -> str | None:
    """The number that rank 0 printed is that of one process, and the ranks have worked it out together."""
    truth, found = seen[0]["truth"], _printed(done, name)
    if found is None:
        return f'{crowd(done)} rank 0 printed no "{name}=…".'
    if abs(found - truth["right"]) > SAME * max(1.0, abs(truth["right"])):
        start = f"{_on_others(done)} rank 0 prints {name}={found:.4f}, one process finds {truth['right']:.4f}."
        known = (hint for case, hint in hints.items() if abs(found - truth[case]) <= SAME * max(1.0, abs(found)))
        return f"{start} {next(known, other)}"
    return _together(done, seen)


def _together(done: Run, seen: dict[int, Seen]) -> str | None:
    if len(seen) == 1 or any(note["calls"] for note in seen.values()):
        return None
    return f"{crowd(done)} the number is right, but no rank told another anything: {WHOLE}"


WHOLE = "each has done the whole work. Let each do its share, and put the shares together."


def _shared(work: dict[int, int]) -> str | None:
    """The ranks shared the work. `work`: by world size, the samples that all ranks together have worked on."""
    for world, samples in work.items():
        if samples > 1.5 * work[1]:  # some of it may be done by all: a look at the loss, say
            return (
                f"With {world} processes the result is right, but together they worked on {samples:,} samples, and one "
                f"process alone on {work[1]:,}: {WHOLE}"
            )
    return None


def _weights(done: Run, seen: dict[int, Seen], apart: str, other: str) -> str | None:
    """All ranks end with the weights of one process."""
    truth = seen[0]["truth"]["weights"]
    for rank, note in seen.items():
        if set(note["weights"]) != set(truth):
            return (
                f"{crowd(done)} rank {rank}'s optimizer trained parameters of the shapes "
                f"{', '.join(sorted(note['weights'])) or 'none'}; the script as it came in has "
                f"{', '.join(sorted(truth))}."
            )
    for rank, note in seen.items():
        for shape in truth:
            far = _far(note["weights"][shape], seen[0]["weights"][shape])
            if not far <= SAME:
                return (
                    f"{crowd(done)} the parameters of shape {shape} are {far:.2g} apart on ranks 0 and {rank}. {apart}"
                )
    for shape, right in truth.items():
        off = _far(seen[0]["weights"][shape], right)
        if not off <= SAME:
            return (
                f"{crowd(done)} all ranks have the same parameters of shape {shape}, but one process has others: they "
                f"are off by {off:.2g}. {other}"
            )
    return None


def _far(a: list[float], b: list[float]) -> float:
    """The largest difference; nan when there is one in either."""
    differences = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return max(differences) if all(d == d for d in differences) else float("nan")


# ---- the eight ------------------------------------------------------------------------------------------------------


def _ink(done: Run, seen: dict[int, Seen]) -> str | None:
    one_vote = "Each rank's mean counts as one, however many scans it stands for. Send what can be added up."
    hints = {
        "one vote a rank": one_vote,
        "an empty rank votes 0": f"A rank without scans votes 0, and its vote counts. {one_vote}",
        "own": "That is the mean of rank 0's scans alone. How do the others' come in?",
        "a sum": "That is the sum of nine means. By what is a mean divided?",
        "sums over ranks": "The sum of all scans was divided by the number of ranks. How many scans are there?",
    }
    return _number(done, seen, "ink", hints, "It must be the mean over all nine scans, each counted once.")


def _last_loss(done: Run, seen: dict[int, Seen]) -> str | None:
    hints = {
        "own": "That is rank 0's own loss: nothing came from the others.",
        "own, divided": "That is rank 0's own loss, divided by the number of ranks: nothing came from the others.",
        "a sum": "all_reduce adds up. What makes a mean of a sum?",
        "divided twice": "It was divided by the number of ranks once too often.",
        "written for 2": "There are not always two ranks. Which number in the script knows how many there are?",
    }
    hint = _number(done, seen, "loss", hints, "It must be the mean of the ranks' last losses.")
    printed = sum("loss" in metric for metric in done.metrics)
    if not hint and printed > 1:
        return f"{crowd(done)} the loss is right, but it was printed {printed} times. One rank is to print it, once."
    return hint


def _shifted_loss(done: Run, seen: dict[int, Seen]) -> str | None:
    hints = {"own": "That is rank 0's share alone, in a sum over all."}
    other = "All 8 shifts of all 960 digits count, once. Taking less is no cure: keep less of it."
    return _number(done, seen, "loss", hints, other)


def _accuracy(done: Run, seen: dict[int, Seen]) -> str | None:
    hints = {
        "own": "Those are rank 0's right ones over all 97. Where do the others' come in?",
        "own share": "That is the accuracy of rank 0's share.",
    }
    found, right = _printed(done, "accuracy"), seen[0]["truth"]["right"]
    lost = 97 * (right - found) if found is not None else 0.0
    other = (
        f"That is {lost:.0f} right ones of 97 too few: digits were left out. All of them count, whoever holds how many."
        if lost > 0
        else "Each of the 97 digits must count once."
    )
    return _number(done, seen, "accuracy", hints, other)


def _normalised(done: Run, seen: dict[int, Seen]) -> str | None:
    truth, found = seen[0]["truth"], _printed(done, "accuracy")
    drift = "The training was right when the script came in. What became of the wrapper?"
    without = set(truth["weights"]) - set(seen[0]["weights"])
    if without:
        return (
            f"{crowd(done)} the parameters of the shape {min(without)}, BatchNorm's, are gone. A network without "
            "BatchNorm needs no buffers, and is another one."
        )
    hint = _weights(done, seen, drift, drift)
    if hint:
        return hint
    if found is None:
        return f'{crowd(done)} rank 0 printed no "accuracy=…".'
    if abs(found - truth["right"]) <= SAME:
        return None
    start = f"{_on_others(done)} rank 0 prints accuracy={found:.4f}; its network, in eval(), has {truth['right']:.4f}."
    if abs(found - truth["in training mode"]) <= SAME:
        return f"{start} That is what it has in training mode: BatchNorm took the statistics of each batch."
    return f"{start} All 97 held-out digits, through rank 0's network, in eval()?"


def _head(done: Run, seen: dict[int, Seen]) -> str | None:
    apart = (
        "Each rank still trains these alone. DDP looks at a module when it is wrapped, and at nothing that comes later."
    )
    other = "They were the same at the end, but not in each step: averaged late, or too often, or by another factor?"
    return _weights(done, seen, apart, other)


def _of_each_digit(done: Run, seen: dict[int, Seen]) -> str | None:
    truth = seen[0]["truth"]
    lines = [metric for metric in done.metrics if metric["rank"] == 0 and "digit" in metric and "right" in metric]
    found = {int(line["digit"]): int(line["right"]) for line in lines}
    if sorted(found) != list(range(10)):
        return f'{crowd(done)} rank 0 printed no "digit=… right=…" for each of the ten digits.'
    wrong = [digit for digit in range(10) if found[digit] != truth["right"][digit]]
    if not wrong:
        return _together(done, seen)
    digit = wrong[0]
    right = truth["right"][digit]
    start = f"{_on_others(done)} rank 0 prints right={found[digit]} for digit {digit}, one process counts {right}."
    if [found[digit] for digit in range(10)] == truth["own"]:
        return f"{start} Those are rank 0's own counts: nothing came from the others."
    if all(found[d] == min(truth["of"][d], found[d]) for d in wrong) and sum(found.values()) < sum(truth["right"]):
        return f"{start} Altogether {sum(truth['right']) - sum(found.values())} right ones are missing. {MIXED}"
    if len(seen) > 2 and truth["missing"]:
        return f"{start} {_without(done, truth)}"
    return f"{start} {MIXED}"


MIXED = "Counts of different digits are added, still. In which order does each rank go through its dict?"


def _without(done: Run, truth: Seen) -> str:
    digits = ", ".join(map(str, truth["missing"]))
    return (
        f"Rank {len(done.ranks) - 1} was dealt no {digits} this time, so that its dict has no such key. What must all "
        "ranks do, whatever their share holds?"
    )


def _damaged(done: Run, seen: dict[int, Seen]) -> str | None:
    steps = {rank: note["steps"] for rank, note in seen.items()}
    if any(value != value for note in seen.values() for values in note["weights"].values() for value in values):
        hint = f"{crowd(done)} the weights are nan at the end: the damaged scan was learnt from."
        spread = " backward() had averaged it into the gradients of all ranks: who skips the step must not be alone."
        return hint + (spread if min(steps.values()) < 8 else " What is left out must be left out by all ranks.")
    odd = next((rank for rank in steps if steps[rank] != steps[0]), None)
    if odd is not None:
        return (
            f"{crowd(done)} rank 0 made {steps[0]} steps, rank {odd} made {steps[odd]}. Who skips a step must not be "
            "alone with it: how do the others hear of it?"
        )
    apart = "A step that only one rank leaves out drives the models apart. How do the others hear of it?"
    other = (
        f"Each rank made {steps[0]} steps; the batch with the damaged scan, left out as a whole by all, leaves 7."
        if steps[0] != 7
        else "The damaged batch is left out by all, and every other batch is learnt from, whole."
    )
    return _weights(done, seen, apart, other)


WAITS = "A rank waits for a call that another does not make. Which line makes it, on which ranks?"
CURES = (
    Cure(
        1,
        (4, 2, 1),
        "Nine scans do not always come out even: a rank may have none, and must take part all the same.",
        _ink,
    ),
    Cure(2, (2, 3, 1), f"{WAITS} A collective is called by all, only the print is rank 0's.", _last_loss),
    Cure(
        3,
        (2, 3, 1),
        "The check plays a machine with little memory, as admit(3) did (your own cell does not: watch the megabytes "
        "there), and the memory still grows with each shift. What does total hold on to, beside a number, as long as "
        "nobody calls backward()?",
        _shifted_loss,
    ),
    Cure(4, (2, 3, 1), f"{WAITS} How often does each rank go round the loop?", _accuracy),
    Cure(
        5,
        (2, 3, 1),
        f"{WAITS} The wrapper is there for training. What is inside it needs nobody.",
        _normalised,
    ),
    Cure(6, (2, 3, 1), "All ranks must build the same model, and wrap it when it is complete.", _head),
    Cure(7, (2, 3, 1), f"{WAITS} Must every rank know every digit?", _of_each_digit),
    Cure(
        8,
        (2, 3, 1),
        f"{WAITS} backward() is a collective too: one that is left out is missed, sooner or later.",
        _damaged,
    ),
)


def _tried_at(worlds: tuple[int, ...]) -> str:
    *first, last = (str(world) for world in sorted(worlds))
    return f"with {', '.join(first)} and {last} processes, on digits in another order, against one process"


CHECKS = {
    f"09.{cure.patient}": ScriptExercise(f"scripts/09_mended_{cure.patient}.py", cure, _tried_at(cure.worlds))
    for cure in CURES
}
