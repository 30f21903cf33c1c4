"""Exercises of lesson 05: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_notebooks import Lesson, read_source
from exercise_cells import Cells

from ddp_helpers import check
from ddp_helpers.exercises import Verdict

LESSON = Lesson("05_who_sees_which_sample")
SCRIPTS = {
    "05.1": "scripts/05_eval_sampler.py",
    "05.2": "scripts/05_epochs.py",
    "05.3": "scripts/05_stream.py",
    "05.4": "scripts/05_resume.py",
}
FIND = "scripts/05_find.py"
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
with_solution = CELLS.with_solutions
pytestmark = pytest.mark.usefixtures("notebook_folder")


def mended(*answer: object) -> Verdict:
    Path(FIND).write_text(CELLS.text(FIND), encoding="utf-8")
    return check("05.5", answer)


OTHER_STYLES = {
    "05.1 blocks of almost equal length": (
        "05.1",
        """
        def _part(self):
            each, rest = divmod(len(self.dataset), self.num_replicas)
            start = self.rank * each + min(self.rank, rest)
            return range(start, start + each + (self.rank < rest))

        def __iter__(self):
            yield from self._part()

        def __len__(self):
            return len(self._part())
        """,
    ),
    "05.1 asks the group, not the base class": (
        "05.1",
        """
        def __init__(self, dataset, **options):
            self.numbers = [i for i in range(len(dataset)) if i % dist.get_world_size() == dist.get_rank()]

        def __iter__(self):
            return iter(self.numbers)

        def __len__(self):
            return len(self.numbers)
        """,
    ),
    "05.2 sets the attribute": ("05.2", "sampler.epoch = epoch\n"),
    "05.2 through the loader, from 1": ("05.2", "loader.sampler.set_epoch(epoch + 1)\n"),
    "05.2 a new sampler, in a new loader": (
        "05.2",
        "loader = DataLoader(samples, batch_size=2, sampler=DistributedSampler(samples, seed=epoch))\n",
    ),
    "05.3 counts on, worker first": (
        "05.3",
        """
        import torch.utils.data as data
        info = data.get_worker_info()
        number, each = (info.id, info.num_workers) if info is not None else (0, 1)
        mine, readers = number * self.world_size + self.rank, each * self.world_size
        items = (item for place, item in enumerate(items) if place % readers == mine)
        """,
    ),
    "05.4 a sampler class of its own": (
        "05.4",
        """
        class Rest(DistributedSampler):
            def __iter__(self):
                yield from islice(super().__iter__(), step * batch_size, None)
            def __len__(self):
                return super().__len__() - step * batch_size
        left = Rest(dataset)
        left.set_epoch(epoch)
        """,
    ),
    "05.4 whole batches from a batch sampler": (
        "05.4",
        """
        from torch.utils.data import BatchSampler
        sampler.set_epoch(epoch)
        batches = list(BatchSampler(sampler, batch_size, drop_last=False))[step:]
        return DataLoader(dataset, batch_sampler=batches)
        """,
    ),
    "05.4 draws the numbers that are done": (
        "05.4",
        """
        sampler.set_epoch(epoch)
        numbers = iter(sampler)
        for _ in range(step * batch_size):
            next(numbers)
        left = list(numbers)
        """,
    ),
}


@pytest.mark.parametrize(("exercise", "solution"), OTHER_STYLES.values(), ids=OTHER_STYLES)
def test_a_right_answer_in_another_style_passes(exercise: str, solution: str) -> None:
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.passed, verdict


RIGHT_LINES = {
    "the sum": "dist.all_reduce(accuracy)",
    "an average of shares of the whole, made up for": "accuracy = right / size * world_size",
}
WRONG_LINES = {"the sum": "dist.all_reduce(accuracy, op=dist.ReduceOp.AVG)"}


def test_the_lessons_own_mended_line_passes() -> None:
    source = next(cell.source for cell in read_source(LESSON).cells if cell.source.startswith("mended = ("))
    names: dict[str, tuple[str, str]] = {}
    exec(source, names)
    assert mended(*names["mended"]).passed


@pytest.mark.parametrize("name", RIGHT_LINES)
def test_the_line_can_be_mended_in_more_than_one_way(name: str) -> None:
    verdict = mended(WRONG_LINES.get(name, "accuracy = right / size"), RIGHT_LINES[name])
    assert verdict.passed, verdict


# What is wrong, the answer, and words that only this mistake's hint has.
EVAL_SAMPLER = {
    "pads": (
        "def __len__(self):\n    return super().__len__()\n",
        "With 2 processes, and 7 samples, sample 0 is read 2 times, by ranks 0 and 1, and counts as often",
    ),
    "drops the last": (
        """
        def __iter__(self):
            each = len(self.dataset) // self.num_replicas
            return iter(range(self.rank * each, (self.rank + 1) * each))
        """,
        "nobody reads 6. The last samples count too",
    ),
    "everything for everyone": (
        "def __iter__(self):\n    return iter(range(len(self.dataset)))\n",
        "every rank reads all of them",
    ),
    "the last one takes the rest": (
        """
        def __iter__(self):
            each = len(self.dataset) // self.num_replicas
            end = len(self.dataset) if self.rank == self.num_replicas - 1 else (self.rank + 1) * each
            return iter(range(self.rank * each, end))
        def __len__(self):
            return sum(1 for _ in self)
        """,
        "rank 2 reads 9 and rank 0 reads 7. All wait for the slowest",
    ),
    "len is the padded one": (
        "def __iter__(self):\n    return iter(range(self.rank, len(self.dataset), self.num_replicas))\n",
        "len() of rank 1's sampler is 4, and it gives 3 numbers",
    ),
    "shares run over the end": (
        """
        def __iter__(self):
            each = -(-len(self.dataset) // self.num_replicas)
            return iter(range(self.rank * each, (self.rank + 1) * each))
        """,
        "rank 1's sampler gives 7. It should give numbers from 0 to 6",
    ),
    "only once": (
        """
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.numbers = iter(range(self.rank, len(self.dataset), self.num_replicas))
        def __iter__(self):
            return self.numbers
        """,
        "4 numbers the first time and 0 the second",
    ),
    "no rank in it": (
        """
        def __iter__(self):
            return iter(range(0, len(self.dataset), self.num_replicas))
        """,
        "With 2 processes, and 7 samples, ranks 0 and 1 read sample 0, and nobody reads sample 1",
    ),
    "a list in place of an iterator": (
        "def __iter__(self):\n    return list(range(self.rank, len(self.dataset), self.num_replicas))\n",
        "non-iterator of type 'list'",
    ),
    "fails for few": (
        """
        def __iter__(self):
            return iter(torch.arange(len(self.dataset)).chunk(self.num_replicas)[self.rank].tolist())
        def __len__(self):
            return sum(1 for _ in self)
        """,
        "That was with a dataset of size 1.",
    ),
}
SET_EPOCH = {
    "always the same epoch": ("sampler.set_epoch(0)\n", "The sampler was told 0, 0 and 0. Is that another number"),
    "every second epoch": (
        "sampler.set_epoch(epoch // 2)\n",
        "The sampler was told 0, 0 and 1. Is that another number",
    ),
    "nothing": ("pass\n", "The sampler was told nothing"),
    "torch's seed": ("import torch\ntorch.manual_seed(epoch)\n", "The sampler was told nothing"),
    "a new sampler that nobody uses": (
        "sampler = DistributedSampler(samples, seed=epoch)\n",
        "You make a new sampler. The loader still holds the first one.",
    ),
    "a new sampler that nobody uses is told": (
        "sampler = DistributedSampler(samples)\nsampler.set_epoch(epoch)\n",
        "You make a new sampler. The loader still holds the first one.",
    ),
    "a new sampler and loader, both untold": (
        "sampler = DistributedSampler(samples)\nloader = DataLoader(samples, batch_size=2, sampler=sampler)\n",
        "The sampler was told nothing",
    ),
    "the rank": ("sampler.set_epoch(dist.get_rank())\n", "rank 1 1, 1 and 1: the ranks no longer share"),
    "epoch and rank": (
        "sampler.set_epoch(epoch + 10 * dist.get_rank())\n",
        "rank 1 10, 11 and 12: the ranks no longer",
    ),
    "a loader without the sampler": (
        "loader = DataLoader(samples, batch_size=2, shuffle=True)\n",
        "the loader has lost its sampler",
    ),
    "tells the loader": ("loader.set_epoch(epoch)\n", "has no attribute 'set_epoch'"),
}
STREAM = {
    "no sharding": ("", "each item is read 6 times: 2 × 3. Nothing has been shared out"),
    "by rank only": (
        "items = islice(items, self.rank, None, self.world_size)\n",
        "by all 3 workers of one rank",
    ),
    "by worker only": (
        """
        info = get_worker_info()
        items = islice(items, info.id, None, info.num_workers) if info else items
        """,
        "once on every rank. The workers share: and the ranks?",
    ),
    "fails without workers": (
        """
        info = get_worker_info()
        items = islice(items, self.rank * info.num_workers + info.id, None, self.world_size * info.num_workers)
        """,
        "what does get_worker_info() return?",
    ),
    "rank and worker added up": (
        """
        info = get_worker_info()
        number, each = (info.id, info.num_workers) if info else (0, 1)
        items = islice(items, self.rank + number, None, self.world_size * each)
        """,
        "Count all workers of all ranks from 0",
    ),
    "needs a length": (
        "items = list(items)[: len(items)]\n",
        "object of type 'generator' has no len()",
    ),
    "blocks of a known length": (
        """
        info = get_worker_info()
        number, each = (info.id, info.num_workers) if info else (0, 1)
        size = 23 // (self.world_size * each)
        start = (self.rank * each + number) * size
        items = islice(items, start, start + size)
        """,
        "nobody reads items 18 to 36, the end",
    ),
    "blocks of a known length, rounded up": (
        """
        info = get_worker_info()
        number, each = (info.id, info.num_workers) if info else (0, 1)
        size = -(-23 // (self.world_size * each))
        start = (self.rank * each + number) * size
        items = islice(items, start, start + size)
        """,
        "nobody reads items 24 to 36, the end",
    ),
    "readers counted from 1": (
        """
        info = get_worker_info()
        number, each = (info.id, info.num_workers) if info else (0, 1)
        items = islice(items, self.rank * each + number + 1, None, self.world_size * each)
        """,
        "does each have a number of its own, below the step?",
    ),
}
RESUME = {
    "begins anew": ("sampler.set_epoch(epoch)\n", "it begins the epoch anew, with sample"),
    "the epoch is not set": ("left = list(sampler)[step * batch_size:]\n", "In which order does the sampler deal"),
    "samples for batches": (
        "sampler.set_epoch(epoch)\nleft = list(sampler)[step:]\n",
        "it skips 2 samples of its own, and had trained on 6",
    ),
    "the steps of all ranks": (
        "sampler.set_epoch(epoch)\nleft = list(sampler)[step * batch_size * dist.get_world_size():]\n",
        "it skips 12 samples of its own, and had trained on 6",
    ),
    "drops the end": (
        "sampler.set_epoch(epoch)\nleft = list(sampler)[:len(sampler) - step * batch_size]\n",
        "and leaves out the last ones",
    ),
    "loads and throws away": (
        """
        sampler.set_epoch(epoch)
        return islice(DataLoader(dataset, batch_size, sampler=sampler), step, None)
        """,
        "loads 6 samples again only to throw them away",
    ),
    "shuffles the rest": (
        """
        import random
        sampler.set_epoch(epoch)
        left = list(sampler)[step * batch_size:]
        random.Random(0).shuffle(left)
        """,
        "it reads the right samples in another order",
    ),
    "batches of one": (
        """
        sampler.set_epoch(epoch)
        return DataLoader(dataset, 1, sampler=list(sampler)[step * batch_size:])
        """,
        "the order is right, but the batches have 1, 1",
    ),
    "numbers in place of samples": (
        """
        sampler.set_epoch(epoch)
        return DataLoader(list(sampler)[step * batch_size:], batch_size)
        """,
        "which no sample of the dataset is. Is that a sample",
    ),
    "a mistake in the code": ("left = list(sampler)[steps:]\n", "name 'steps' is not defined"),
}
WRONG = {
    f"{exercise} {name}": (exercise, solution, hint)
    for exercise, answers in {"05.1": EVAL_SAMPLER, "05.2": SET_EPOCH, "05.3": STREAM, "05.4": RESUME}.items()
    for name, (solution, hint) in answers.items()
}


@pytest.mark.parametrize(("exercise", "solution", "hint"), WRONG.values(), ids=WRONG)
def test_a_typical_mistake_gets_its_own_hint(exercise: str, solution: str, hint: str) -> None:
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.kind == "wrong"
    assert hint in verdict.text
    answers = {"05.1": EVAL_SAMPLER, "05.2": SET_EPOCH, "05.3": STREAM, "05.4": RESUME}[exercise]
    assert not [other for _, other in answers.values() if other not in hint and other in verdict.text]


ACCURACY = "accuracy = right / size"
REDUCE = "dist.all_reduce(accuracy, op=dist.ReduceOp.AVG)"
MENDED_WRONGLY = {
    "nothing changed": ((ACCURACY, ACCURACY), "0.1875 is printed where 0.7500 is true: 4 times too little"),
    "a mean of means": ((ACCURACY, "accuracy = right / len(share)"), "a mean of means weighs them alike"),
    "no meeting": ((REDUCE, "pass"), "the ranks print 0.1667, 0.1667, 0.1667 and 0.2500"),
    "always right": ((REDUCE, "accuracy.fill_(1)"), "Does it still look at the guesses?"),
    "an error": ((REDUCE, "dist.all_reduce(acuracy)"), "With your line the script fails"),
    "no such line": (("accuracy = right", "accuracy = right / 2"), "The script has 0 lines that read"),
    "one string": (("dist.all_reduce(accuracy)",), "Give two strings"),
    "prints nothing": (('print(f"accuracy={accuracy.item():.4f}")', "pass"), 'prints no "accuracy=…" any more'),
}


@pytest.mark.parametrize(("answer", "hint"), MENDED_WRONGLY.values(), ids=MENDED_WRONGLY)
def test_a_wrongly_mended_line_gets_its_own_hint(answer: tuple[str, ...], hint: str) -> None:
    verdict = mended(*answer)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in MENDED_WRONGLY.values() if other != hint and other in verdict.text]


def test_the_line_to_find_is_not_attempted_before_an_answer_and_needs_the_script() -> None:
    assert check("05.5", ...).kind == "unattempted"
    verdict = check("05.5", (REDUCE, "dist.all_reduce(accuracy)"))
    assert verdict.kind == "wrong" and "There is no scripts/05_find.py to mend" in verdict.text
