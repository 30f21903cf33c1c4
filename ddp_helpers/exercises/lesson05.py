"""Exercises of lesson 05: who reads which sample, in evaluation, over the epochs, from a stream, after a stop.

The scripts run inside loading_harness.py, which also calls what they define with data that they don't know. What is
right is counted here: each sample so often, in this order. Nothing is compared with a stored list.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..result import Run
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .loading_harness import BATCH, CODE, SAMPLES
from .note import left_by

HARNESS = "loading_harness.py"
WORLDS = (2, 1, 3, 4)  # begins with two: most mistakes show, and their hints say most
FIND = "scripts/05_find.py"
LIST_IS_SAMPLER = "Any list of numbers can be a loader's sampler: which numbers are left?"

Case = dict[str, Any]


def _tried(attempt: Attempt, mode: str, *args: str, nproc: int) -> tuple[Run, list[list[Case]]]:
    """The run, and the cases of each rank; Wrong when a rank failed."""
    run = attempt.run_through(HARNESS, mode, *args, nproc=nproc)
    cases = {rank: note["cases"] for rank, note in left_by(run, "loading.json").items()}
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        last = (cases.get(run.failure.rank) or [{}])[-1] if run.failure else {}
        raise Wrong(f"{wrong}{_in_case(last, wrong.failure)}", wrong.failure) from None
    return run, [cases[rank] for rank in sorted(cases)]


def _in_case(case: Case, failure: str) -> str:
    if "size" in case:
        return f"\nThat was with a dataset of size {case['size']}."
    if "workers" in case:
        outside = " Outside of a worker, what does get_worker_info() return?" if "NoneType" in failure else ""
        return f"\nThat was with num_workers={case['workers']} and a stream of {case['length']} items.{outside}"
    if "epoch" in case:
        return f"\nThat was in loader_from(…, epoch={case['epoch']}, step={case['step']}, batch_size={BATCH})."
    return ""


# ---- 05.1: a sampler for evaluation ---------------------------------------------------------------------------------


def every_sample_once(attempt: Attempt) -> str | None:
    """For every size and world the ranks' shares are a partition of nearly equal parts, and the accuracy is exact."""
    for nproc in WORLDS:
        count = 34 + nproc  # the first divides by the world: what is wrong shows with the harness's sizes, in its words
        run, ranks = _tried(attempt, "sampler", str(count), nproc=nproc)
        for cases in zip(*ranks, strict=True):
            hint = _judge_shares(run, list(cases))
            if hint:
                return hint
        hint = _judge_accuracy(run, count)
        if hint:
            return hint
    return None


def _judge_shares(run: Run, cases: list[Case]) -> str | None:
    size, world = cases[0]["size"], len(cases)
    where = f"{crowd(run)} and {size} sample{'s' * (size != 1)},"
    shares = [case["read"] for case in cases]
    times = Counter(index for share in shares for index in share)
    strange = [(rank, index) for rank, share in enumerate(shares) for index in share if index not in range(size)]
    if strange:
        rank, index = strange[0]
        return f"{where} rank {rank}'s sampler gives {index}. It should give numbers from 0 to {size - 1}."
    twice, lost = _twice_and_lost(times, size)
    if world > 1 and twice and all(len(share) == size for share in shares):
        return f"{where} every rank reads all of them. What is this rank's part?"
    if twice and lost:
        readers = _readers(shares, twice[0])
        return (
            f"{where} {readers} read sample {twice[0]}, and nobody reads sample {lost[0]}. Whose turn is it after whom?"
        )
    if twice:
        readers = _readers(shares, twice[0])
        return (
            f"{where} sample {twice[0]} is read {times[twice[0]]} times, by {readers}, and counts as often in the "
            f"accuracy. {size} samples for {world} ranks: must all have equally many?"
        )
    if lost:
        return f"{where} nobody reads {_listed(lost)}. The last samples count too: which rank has room for one more?"
    return _judge_order_of_calls(where, cases)


def _twice_and_lost(times: Counter[int], size: int) -> tuple[list[int], list[int]]:
    return [n for n in range(size) if times[n] > 1], [n for n in range(size) if not times[n]]


def _judge_order_of_calls(where: str, cases: list[Case]) -> str | None:
    sizes = [len(case["read"]) for case in cases]
    if max(sizes) - min(sizes) > 1:
        most, least = sizes.index(max(sizes)), sizes.index(min(sizes))
        return (
            f"{where} each is read once, but rank {most} reads {max(sizes)} and rank {least} reads {min(sizes)}. "
            "All wait for the slowest: spread the rest."
        )
    for rank, case in enumerate(cases):
        if case["again"] != case["read"]:
            return (
                f"{where} rank {rank}'s sampler gives {len(case['read'])} numbers the first time and "
                f"{len(case['again'])} the second. A loader asks it anew for every evaluation."
            )
        if case["len"] != len(case["read"]):
            return (
                f"{where} len() of rank {rank}'s sampler is {case['len']}, and it gives {len(case['read'])} numbers. "
                "A loader computes its own length from it."
            )
    return None


def _judge_accuracy(run: Run, count: int) -> str | None:
    """The script itself, with the digits: the oracle is written in NumPy and knows no ranks."""
    digits = np.load("../data/digits.npz")
    images, labels = digits["images"].reshape(-1, 64).astype(float), digits["labels"].astype(int)
    means = np.stack([images[:1500][labels[:1500] == digit].mean(0) for digit in range(10)])
    distances = ((images[-count:, None, :] - means) ** 2).sum(-1)
    truth = float((distances.argmin(1) == labels[-count:]).mean())
    found = re.search(r"seen=(\d+) accuracy=([\d.]+)", run.ranks[0].stdout)
    if found is None:
        return f'{crowd(run)} rank 0 printed no "seen=… accuracy=…". Leave the script below the class as it is.'
    if int(found[1]) != count or abs(float(found[2]) - truth) > 1e-4:
        return (
            f"{crowd(run)} the script saw {found[1]} of {count} digits and printed the accuracy {found[2]}; one "
            f"process finds {truth:.4f}. The sampler is right: what else is counted?"
        )
    return None


def _readers(shares: Sequence[Sequence[int]], number: int) -> str:
    readers = [rank for rank, share in enumerate(shares) if number in share]
    return f"rank{'s' if len(readers) > 1 else ''} {_listed(readers)}"


def _listed(items: Sequence[object], most: int = 6) -> str:
    words = [str(item) for item in items[:most]]
    if len(items) > most:
        return f"{', '.join(words)} … ({len(items)} in all)"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# ---- 05.2: set_epoch ------------------------------------------------------------------------------------------------


def another_order_each_epoch(attempt: Attempt) -> str | None:
    """In each epoch the ranks share one permutation, and it is another one than in the epochs before."""
    for nproc, size in ((2, 11), (1, 12), (3, 13), (4, 10)):
        run, ranks = _tried(attempt, "epochs", str(size), nproc=nproc)
        epochs = [[_flat(epoch) for epoch in cases[-1]["seen"]] for cases in ranks]
        told = [[case["told"] for case in cases if "told" in case] for cases in ranks]
        stale = any(cases[-1]["stale"] for cases in ranks)
        hint = _judge_one_permutation(run, size, epochs, told) or _judge_change(run, epochs, told, stale)
        if hint:
            return hint
    return None


def _flat(epoch: Sequence[Any]) -> list[int]:
    return [int(n) for batch in epoch for n in (batch if isinstance(batch, list) else [batch])]


def _judge_one_permutation(run: Run, size: int, epochs: list[list[list[int]]], told: list[list[int]]) -> str | None:
    world = len(epochs)
    if world > 1 and all(len(epoch) == size for of_rank in epochs for epoch in of_rank):
        return f"{crowd(run)} every rank reads all {size} samples in each epoch: the loader has lost its sampler."
    padding = math.ceil(size / world) * world - size
    for epoch in range(min(map(len, epochs))):
        shares = [of_rank[epoch] for of_rank in epochs]
        times = Counter(number for share in shares for number in share)
        twice, lost = _twice_and_lost(times, size)
        if not lost and sum(times.values()) - size <= padding:
            continue
        example = f"sample {twice[0]} is read {times[twice[0]]} times" if twice else "samples are missing"
        gone = f", sample {lost[0]} by nobody" if lost else ""
        tells = {tuple(of_rank) for of_rank in told}
        why = (
            f"Rank 0 was told the epochs {_listed(told[0])}, rank {world - 1} {_listed(told[-1])}: the ranks no longer "
            "share one permutation. Which number is the same on all of them?"
            if len(tells) > 1
            else "The ranks no longer share one permutation."
        )
        return f"{crowd(run)} in epoch {epoch} {example}{gone}, which padding ({padding}) cannot explain. {why}"
    return None


def _judge_change(run: Run, epochs: list[list[list[int]]], told: list[list[int]], stale: bool) -> str | None:
    for rank, of_rank in enumerate(epochs):
        if len(of_rank) < 3:
            return f"{crowd(run)} rank {rank} has {len(of_rank)} epochs in seen, not 3. Leave the rest as it is."
    for first, second in ((0, 1), (1, 2), (0, 2)):
        if any(of_rank[first] != of_rank[second] for of_rank in epochs):
            continue
        same = f"{crowd(run)} every rank reads the same in epochs {first} and {second}"
        example = f" (rank 0: {', '.join(map(str, epochs[0][first][:4]))}{', …' * (len(epochs[0][first]) > 4)})."
        if stale:
            return f"{same}{example} You make a new sampler. The loader still holds the first one."
        if not told[0]:
            return f"{same}{example} The sampler was told nothing. It does not look at torch's or Python's own seeds."
        return f"{same}{example} The sampler was told {_listed(told[0])}. Is that another number in each epoch?"
    return None


# ---- 05.3: a sharded stream -----------------------------------------------------------------------------------------


def stream_without_loss(attempt: Attempt) -> str | None:
    """Each item of the stream is read once, by one worker of one rank, for any number of both."""
    for nproc in WORLDS:
        run, ranks = _tried(attempt, "stream", nproc=nproc)
        for cases in zip(*ranks, strict=True):
            hint = _judge_stream(run, list(cases))
            if hint:
                return hint
    return _judge_real_workers(attempt)


def _judge_stream(run: Run, cases: list[Case]) -> str | None:
    length, workers, world = cases[0]["length"], cases[0]["workers"], len(cases)
    each = max(1, workers)
    where = f"{crowd(run)} num_workers={workers} and {length} items,"
    times = Counter(item for case in cases for share in case["shares"] for item in share)
    by_rank = [Counter(item for share in case["shares"] for item in share) for case in cases]
    twice, lost = _twice_and_lost(times, length)
    if twice and not lost and set(times.values()) == {world * each}:
        return f"{where} each item is read {world * each} times: {world} × {each}. Nothing has been shared out."
    if twice and not lost and set(times.values()) == {each}:
        return (
            f"{where} each item is read {each} times, by all {each} workers of one rank. The ranks share: "
            "who tells the workers of one rank apart?"
        )
    if twice and not lost and set(times.values()) == {world}:
        return f"{where} each item is read {world} times, once on every rank. The workers share: and the ranks?"
    if twice:
        readers = [
            f"rank {rank} worker {worker}"
            for rank, case in enumerate(cases)
            for worker, share in enumerate(case["shares"])
            if twice[0] in share
        ]
        on_one = " Count all workers of all ranks from 0: what is the step from one item to the next?"
        gone = f", and nobody reads item {lost[0]}" if lost else ""
        return f"{where} {_listed(readers)} both read item {twice[0]}{gone}.{on_one}"
    if lost and 0 < lost[0] < length - 1 and lost == list(range(lost[0], length)):
        return (
            f"{where} nobody reads items {lost[0]} to {length - 1}, the end. Does a number in your code stand for the "
            "length of the stream? It may be any."
        )
    if lost:
        read = [sum(counts.values()) for counts in by_rank]
        return (
            f"{where} nobody reads item {_listed(lost)}; the ranks read {_listed(read)} items. "
            f"There are {world * each} readers: does each have a number of its own, below the step?"
        )
    return None


def _judge_real_workers(attempt: Attempt) -> str | None:
    run, _ = _tried(attempt, "run", nproc=2)
    found = [re.search(r"(\d+) items", rank.stdout) for rank in run.ranks]
    counts = [int(match[1]) for match in found if match]
    if len(counts) < len(found):
        return f'{crowd(run)} the script printed no "… items". Leave its last lines as they are.'
    return None


# ---- 05.4: resume in the middle of an epoch -------------------------------------------------------------------------


def goes_on_where_it_stopped(attempt: Attempt) -> str | None:
    """What is left, after what was read, is the epoch as it would have been; nothing is loaded again."""
    for nproc in WORLDS:
        run, ranks = _tried(attempt, "resume", nproc=nproc)
        for rank, cases in enumerate(ranks):
            for case in cases:
                hint = _judge_rest(run, rank, case, _whole_epoch(case["epoch"], rank, nproc))
                if hint:
                    return hint
    return None


def _whole_epoch(epoch: int, rank: int, world: int) -> list[int]:
    """What that rank reads when nothing stops it: one permutation for all, seeded by the epoch, padded, dealt."""
    import torch

    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).tolist()
    padded = order + order[: -SAMPLES % world]
    return [int(index) for index in padded[rank::world]]


def _judge_rest(run: Run, rank: int, case: Case, whole: list[int]) -> str | None:
    epoch, step = case["epoch"], case["step"]
    done, left = whole[: step * BATCH], whole[step * BATCH :]
    read = [number for batch in case["batches"] for number in batch]
    where = f"{crowd(run)} rank {rank} stopped after {step} batches of {BATCH} in epoch {epoch}:"
    strange = [CODE + number for number in read if number not in range(SAMPLES)]
    if strange:
        return (
            f"{where} its loader gives {strange[0]}, which no sample of the dataset is. Is that a sample, or only the "
            "number of one? Load from the dataset that was given."
        )
    if read != left:
        return f"{where} {_hint_for_rest(read, case, whole, done, left)}"
    lengths = [len(batch) for batch in case["batches"]]
    if any(length != BATCH for length in lengths[:-1]):
        return f"{where} the order is right, but the batches have {_listed(lengths)} samples."
    again = [number for number in case["asked"] if number in done and number not in left]
    if again:
        return (
            f"{where} it goes on rightly, but loads {len(again)} samples again only to throw them away, sample "
            f"{again[0]} first. After an hour of training that takes as long as reading did. {LIST_IS_SAMPLER}"
        )
    return None


def _hint_for_rest(read: list[int], case: Case, whole: list[int], done: list[int], left: list[int]) -> str:
    should = f"It should go on with {_listed(left, 3)}"
    if read == whole:
        return f"it begins the epoch anew, with sample {read[0]}, which it had trained on. {should}. {LIST_IS_SAMPLER}"
    if sorted(read) == sorted(left):
        return f"it reads the right samples in another order. {should}."
    if read and read == whole[-len(read) :]:
        skipped = len(whole) - len(read)
        return (
            f"it skips {skipped} samples of its own, and had trained on {len(done)}. {should}. "
            "How many samples has a step, and whose are they?"
        )
    if read and read == whole[: len(read)]:
        return f"it reads sample {read[0]} first, which it had trained on, and leaves out the last ones. {should}."
    return _hint_for_order(read, should, case, done, left)


def _hint_for_order(read: list[int], should: str, case: Case, done: list[int], left: list[int]) -> str:
    repeated = [number for number in read if number in done and number not in left]
    missing = [number for number in left if number not in read]
    parts = [f"it goes on with {_listed(read, 3) or 'nothing'}. {should}."]
    if repeated:
        parts.append(f"Sample {repeated[0]} is trained on a second time in this epoch.")
    if missing:
        parts.append(f"Sample {missing[0]} of its share is never read.")
    parts.append(f"In which order does the sampler deal in epoch {case['epoch']}, and who tells it?")
    return " ".join(parts)


# ---- 05.5: find the line --------------------------------------------------------------------------------------------


def mended_line(answer: object) -> str | None:
    """Put the learner's line in place, and run the script with models that are right, and that are not."""
    if not (isinstance(answer, tuple | list) and len(answer) == 2 and all(isinstance(part, str) for part in answer)):
        return 'Give two strings, the wrong line and the right one: "right = torch.zeros(1)", "right = torch.ones(1)".'
    path = Path(FIND)
    if not path.is_file():
        return f"There is no {FIND} to mend. Run the cell above the exercise, which writes it."
    wrong, right = (str(part).strip() for part in answer)
    lines = path.read_text(encoding="utf-8").splitlines()
    at = [number for number, line in enumerate(lines) if line.strip() == wrong]
    if len(at) != 1:
        return f"The script has {len(at)} lines that read {wrong!r}. Copy the whole line as it stands there."
    lines[at[0]] = lines[at[0]].replace(wrong, right)
    with tempfile.TemporaryDirectory() as folder:
        mended = Path(folder) / "05_mended.py"
        mended.write_text("\n".join(lines) + "\n", encoding="utf-8")
        attempt = Attempt(str(mended))
        try:
            return _judge_mended(attempt)
        except Wrong as failed:
            return f"With your line the script fails. {str(failed).splitlines()[0]}"
        finally:
            for run in attempt.runs:
                shutil.rmtree(run.log_dir, ignore_errors=True)


def _judge_mended(attempt: Attempt) -> str | None:
    for size, mistakes, nproc in ((12, 0, 1), (12, 3, 4), (13, 4, 3), (9, 4, 2), (3, 1, 4)):
        run, _ = _tried(attempt, "run", str(size), str(mistakes), nproc=nproc)
        found = [re.search(r"accuracy=(-?[\d.]+|nan|inf)", rank.stdout) for rank in run.ranks]
        if not all(found):
            return f'{crowd(run)} a rank prints no "accuracy=…" any more.'
        values = [float(match[1]) for match in found if match]
        hint = _judge_values(run, values, size, mistakes)
        if hint:
            return hint
    return None


def _judge_values(run: Run, values: list[float], size: int, mistakes: int) -> str | None:
    truth, world = (size - mistakes) / size, len(values)
    if all(abs(value - truth) < 1e-3 for value in values):
        return None
    case = f"{crowd(run)} {size} samples and {mistakes} mistake{'s' * (mistakes != 1)},"
    if max(values) - min(values) > 1e-3:
        return f"{case} the ranks print {_listed([f'{v:.4f}' for v in values])}. They should agree on {truth:.4f}."
    value = values[0]
    if world > 1 and abs(value * world - truth) < 1e-3:
        return (
            f"{case} {value:.4f} is printed where {truth:.4f} is true: {world} times too little. "
            "Each rank divides its own hits by the size of the whole. What must then be done with the ranks' numbers?"
        )
    if mistakes and abs(value - 1) < 1e-3:
        return f"{case} it prints 1.0000, as for a model that is always right. Does it still look at the guesses?"
    if size % world:
        return (
            f"{case} {value:.4f} is printed where {truth:.4f} is true. With sizes that divide by the world it was "
            "right: the ranks' shares differ in length, and a mean of means weighs them alike."
        )
    return f"{case} {value:.4f} is printed where {truth:.4f} is true."


CHECKS = {
    "05.1": ScriptExercise(
        "scripts/05_eval_sampler.py",
        every_sample_once,
        "with 1 to 4 processes; its sampler was tried for 0 to 23 samples, its accuracy compared with one process's",
    ),
    "05.2": ScriptExercise(
        "scripts/05_epochs.py",
        another_order_each_epoch,
        "with 1 to 4 processes and as many sizes, for three epochs each",
    ),
    "05.3": ScriptExercise(
        "scripts/05_stream.py",
        stream_without_loss,
        "with 1 to 4 processes, each with 0 to 3 workers, for streams of 0 to 37 items",
    ),
    "05.4": ScriptExercise(
        "scripts/05_resume.py",
        goes_on_where_it_stopped,
        "with 1 to 4 processes, stopped at five places in three epochs",
    ),
    "05.5": mended_line,
}
