"""Runs inside a rank, around a learner's script of lesson 08: ``resuming_harness.py MODE SCRIPT [ARGS]``.

MODE is "train" (08.1: a training of our own calls the script's save() and resume(); ARGS are a folder, which kill the
training is about, and whether that comes "now" or has been), "accuracy" (08.2) or "stopping" (08.3): what the script
defines is called with data that it does not know; ARGS are a folder that says which ranks have none. The script is only
read, its ``if __name__ == "__main__"`` is not run. What was seen is left in resuming.json beside the
rank's logs, and so is the case that was being tried, if the script failed in one.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import runpy
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_helpers.exercises import note

EPOCHS, STEPS = 4, 3
# The epoch, counted from 0, in whose middle or in whose save the kill comes: two, so that resume() has to read it.
KILLED_IN = {"step": 2, "save": 3}
SLOW_DISK = 0.3  # seconds that a slow disk waits at most for a rank that returns too early
ENTERS_WITHIN = 5.0  # seconds; the other rank is in the same step, and about to call save() too
CREATES = os.O_CREAT | os.O_TRUNC  # opened with one of these, a file is about to be written
KINDS = ("even", "uneven", "one has none", "dealt", "overlapping")
SIZES = (12, 7, 4, 1)


Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class Scenario:
    """Validation losses: for each epoch the mean of each third of the samples, and how large the thirds are.

    A rank gets every third whose number is its rank modulo the world size; a rank without a third has no samples.
    """

    name: str
    patience: int
    sizes: Sizes
    means: tuple[tuple[float, float, float], ...]
    stored_after: int = -1  # the epoch after which everything goes through state_dict() into a new object
    later_sizes: Sizes | None = None  # from the second epoch on, if they are others

    def sizes_in(self, epoch: int) -> Sizes:
        return self.later_sizes if epoch and self.later_sizes else self.sizes


def alike(*losses: float) -> tuple[tuple[float, float, float], ...]:
    return tuple((loss, loss, loss) for loss in losses)


SCENARIOS = (
    Scenario("alike", 2, (8, 8, 8), alike(5, 4, 3, 3.5, 3.4, 3.3)),
    Scenario("a tie", 1, (8, 8, 8), alike(4, 3, 3, 2)),
    Scenario("an improvement in between", 2, (8, 8, 8), alike(5, 6, 4, 5, 3, 4, 5, 6)),
    Scenario("apart", 1, (8, 8, 8), ((5, 5, 5), (6, 3, 3), (7, 2, 2), (8, 2, 2), (9, 2, 2))),
    Scenario("sizes", 1, (2, 20, 6), ((3, 3, 3), (0, 3.4, 3), (9, 2, 2), (9, 9, 9))),
    Scenario("one has none", 1, (8, 0, 8), alike(3, 2, 2.5)),
    Scenario("below one", 1, (1, 1, 1), alike(0.9, 0.8, 0.85)),
    Scenario("more samples later", 1, (8, 8, 8), alike(0.9, 0.8, 0.85), later_sizes=(16, 16, 16)),
    Scenario("stored", 3, (8, 8, 8), alike(3, 4, 5, 4, 2, 2), stored_after=2),
    Scenario("stored best", 2, (8, 8, 8), alike(3, 4, 3.5, 3.2), stored_after=1),
)


def main(mode: str, script: str, *args: str) -> None:
    seen: dict[str, Any] = {"cases": []}
    sys.path[0] = str(Path(script).parent)
    sys.argv[:] = [script]
    saves = Saves(torch.save)
    torch.save = saves  # before the script is read: it may say "from torch import save"
    try:
        found = runpy.run_path(script, run_name="read_only")
        dist.init_process_group("gloo")
        dist.barrier()
        if mode == "train":
            try_training(found, Path(args[0]), Kill(args[1], args[2] == "now"), seen, saves)
        elif mode == "accuracy":
            try_accuracy(found["exact_accuracy"], Path(args[0]), seen["cases"])
        else:
            try_stopping(found["EarlyStopping"], Path(args[0]), seen["cases"])
        dist.barrier()
    finally:
        note.leave(seen, "resuming.json")
    dist.destroy_process_group()


# ---- 08.1 -----------------------------------------------------------------------------------------------------------


class Training:
    """A model with dropout, AdamW and a schedule; the data of a step depend on epoch, step and rank only."""

    def __init__(self) -> None:
        rank = dist.get_rank()
        torch.manual_seed(100 + rank)
        layers = torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Dropout(0.4), torch.nn.Linear(6, 3)
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=EPOCHS)
        torch.manual_seed(200 + rank)

    def step(self, epoch: int, step: int) -> None:
        generator = torch.Generator().manual_seed(1000 * epoch + 100 * step + dist.get_rank())
        x, y = torch.randn(5, 8, generator=generator), torch.randint(3, (5,), generator=generator)
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """Copies of all that the next step depends on."""
        return copy.deepcopy(
            {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "random": torch.get_rng_state(),
            }
        )


@dataclass(frozen=True)
class Kill:
    """In the middle of which thing of which epoch the training is killed: in this attempt, or in the one before it."""

    what: str  # "step" or "save"
    now: bool

    @property
    def epoch(self) -> int:
        return KILLED_IN[self.what]

    def comes(self, what: str, epoch: int) -> bool:
        return self.now and (what, epoch) == (self.what, self.epoch)


def try_training(found: dict[str, Any], folder: Path, kill: Kill, seen: dict[str, Any], saves: Saves) -> None:
    """Train with the script's functions, until the kill comes or to the end."""
    rank, path = dist.get_rank(), str(folder / "checkpoint.pt")
    training = Training()
    fresh = training.state()
    sys.addaudithook(saves.notice)
    seen["saved"], seen["early"], seen["elsewhere"] = saves.paths, saves.early, saves.elsewhere
    seen["in_place"] = []
    done = found["resume"](path, training.model, training.optimizer, training.scheduler)
    seen["done"] = done if isinstance(done, int) else repr(done)
    if not kill.now:
        seen["wrong"] = compare(folder, kill.epoch, training.state(), fresh)
        seen["names"] = names_in(path)
    apart = differ(seen["done"])
    if apart or not isinstance(done, int):
        return
    for epoch in range(done, EPOCHS):
        train_epoch(training, epoch, kill)
        if epoch <= kill.epoch:
            note_state(folder, epoch + 1, training.state())
        slow = not kill.now and (epoch, dist.get_world_size()) == (done, 2)
        before = stamp(path)
        with saves.watched(path, rank == 0 and kill.comes("save", epoch), slow):
            found["save"](path, epoch + 1, training.model, training.optimizer, training.scheduler)
        seen["in_place"].append(stamp(path) != before and stamp(path)[0] == before[0])
    if not kill.now:
        ends = training.state()["model"], undisturbed().state()["model"]
        seen["gap"] = max((ends[0][name] - ends[1][name]).abs().max().item() for name in ends[1])


def differ(mine: Any) -> bool:
    """Whether the ranks have different answers; said on all of them."""
    answers = [None] * dist.get_world_size()
    dist.all_gather_object(answers, mine)
    return any(answer != answers[0] for answer in answers)


def train_epoch(training: Training, epoch: int, kill: Kill) -> None:
    for step in range(STEPS):
        training.step(epoch, step)
        if kill.comes("step", epoch) and (step, dist.get_rank()) == (1, dist.get_world_size() - 1):
            os.kill(os.getpid(), signal.SIGKILL)
    training.scheduler.step()


def undisturbed() -> Training:
    """The truth: the same training in one go, without a file."""
    training = Training()
    for epoch in range(EPOCHS):
        train_epoch(training, epoch, Kill("step", now=False))
    return training


def stamp(path: str) -> tuple[int, int]:
    """Another one when the file has been written or replaced; (0, 0) when there is none."""
    if not os.path.isfile(path):
        return 0, 0
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns


class Saves:
    """Watches how save() writes: stands for torch.save, and hears from Python of each file that is created or renamed.

    torch.save opens a path in C++, where Python hears nothing; whatever else writes a file has to open it in Python.
    """

    def __init__(self, real: Any) -> None:
        self.real = real
        self.paths: list[str] = []  # what this rank wrote
        self.elsewhere: list[str] = []  # what was given the name `path`, and lay in another folder
        self.early: list[int] = []  # ranks that have returned from save() while `path` still was the old file
        self.path, self.before = "", (0, 0)  # `path` is empty outside of save()
        self.in_epoch, self.usual = 0, 0  # how many files so far in this epoch, and how many in the one before
        self.kill, self.slow = False, False

    @contextmanager
    def watched(self, path: str, kill: bool, slow: bool) -> Iterator[None]:
        """Around one call of save(): whether a kill comes in the middle of its last file; whether the disk is slow."""
        self.in_epoch, self.usual, self.kill, self.slow = 0, self.in_epoch, kill, slow
        self.before = stamp(path)
        if slow:
            marker(path, "entered", dist.get_rank()).touch()
        self.path = path
        yield
        self.path = ""
        if slow:
            marker(path, "returned", dist.get_rank()).touch()

    def __call__(self, thing: Any, f: Any, *args: Any, **options: Any) -> None:
        to_path = isinstance(f, str | os.PathLike)
        name = str(f) if to_path else getattr(f, "name", None)
        if name is None or not self.path:  # memory, or not within save()
            return self.real(thing, f, *args, **options)
        if not self.begins(str(name)):
            return self.real(thing, f, *args, **options)
        buffer = io.BytesIO()
        self.real(thing, buffer, *args, **options)
        half = buffer.getvalue()[: len(buffer.getvalue()) // 2]
        self.path = ""
        if to_path:
            Path(f).write_bytes(half)
        else:
            f.write(half)
            f.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def notice(self, event: str, details: tuple[Any, ...]) -> None:
        """An audit hook: Python calls it before it opens or renames a file (see its table of audit events)."""
        if not self.path or event not in ("open", "os.rename"):
            return
        name = details[0] if event == "open" else details[1]
        if not isinstance(name, str | bytes | os.PathLike):
            return  # a number: the file is open already
        name = os.path.abspath(os.fsdecode(name))
        if Path(self.path).parent not in Path(name).parents:
            return
        if event == "os.rename":
            self.paths.append(name)
            source = os.path.abspath(os.fsdecode(details[0]))
            if Path(self.path).parent not in Path(source).parents:
                self.elsewhere.append(source)
            self.wait_for_early_ones()
        elif details[2] & CREATES and self.begins(name):
            self.path = ""
            os.close(os.open(name, details[2], 0o666))  # and no byte is written
            os.kill(os.getpid(), signal.SIGKILL)

    def begins(self, name: str) -> bool:
        """A file is begun; whether the kill comes in it."""
        self.paths.append(name)
        self.in_epoch += 1
        self.wait_for_early_ones()
        return self.kill and self.in_epoch >= self.usual

    def wait_for_early_ones(self) -> None:
        """The slow disk: give the other rank the time to return before the file is there."""
        if not self.slow or stamp(self.path) != self.before:
            return
        other, path, self.path = 1 - dist.get_rank(), self.path, ""  # what is done here is not save()'s
        came_by = time.monotonic() + ENTERS_WITHIN
        while not marker(path, "entered", other).exists() and time.monotonic() < came_by:
            time.sleep(0.005)
        until = time.monotonic() + SLOW_DISK
        while not marker(path, "returned", other).exists() and time.monotonic() < until:
            time.sleep(0.005)
        if marker(path, "returned", other).exists():
            self.early.append(other)
        self.path = path


def marker(path: str, what: str, rank: int) -> Path:
    """A file that says that a rank has entered save(), or returned from it, in the one epoch with a slow disk."""
    return Path(path).with_name(f"{what}_{rank}")


def note_state(folder: Path, epochs: int, state: dict[str, Any]) -> None:
    buffer = io.BytesIO()  # not through the watched torch.save to a path
    torch.save(state, buffer)
    half = folder / f"half_{dist.get_rank()}"  # the kill may come while another rank writes
    half.write_bytes(buffer.getvalue())
    os.replace(half, folder / f"expected_{epochs}_{dist.get_rank()}.pt")


def compare(folder: Path, epochs: int, state: dict[str, Any], fresh: dict[str, Any]) -> dict[str, str]:
    """What is not as it was when the last whole checkpoint was saved, and how it is instead."""
    expected = torch.load(folder / f"expected_{epochs}_{dist.get_rank()}.pt")
    later_file = folder / f"expected_{epochs + 1}_{dist.get_rank()}.pt"  # its save was killed
    later = torch.load(later_file) if later_file.exists() else {}
    wrong = {}
    for name, value in expected.items():
        if not same(state[name], value):
            instead = "later" if name in later and same(state[name], later[name]) else "other"
            wrong[name] = "fresh" if same(state[name], fresh[name]) else instead
    if wrong.get("random") == "other":
        first = torch.load(folder / f"expected_{epochs}_0.pt")
        wrong["random"] = "rank 0's" if same(state["random"], first["random"]) else "other"
    return wrong


def names_in(path: str) -> str:
    """Whether the plain model's names are in the file: "plain", "wrapped", "none", "unreadable"; or "no file"."""
    names = {"0.weight", "0.bias", "3.weight", "3.bias"}
    if not os.path.isfile(path):
        return "no file"
    try:
        dicts = list(dicts_in(torch.load(path, map_location="cpu", weights_only=False)))
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError):  # torn, or not written by torch.save
        return "unreadable"
    if any(names <= set(each) for each in dicts):
        return "plain"
    return "wrapped" if any({f"module.{name}" for name in names} <= set(each) for each in dicts) else "none"


def dicts_in(thing: Any) -> Iterator[dict[Any, Any]]:
    if isinstance(thing, dict):
        yield thing
    if isinstance(thing, dict | list | tuple):
        for value in thing.values() if isinstance(thing, dict) else thing:
            yield from dicts_in(value)


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, tensors, lists and dicts alike."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


# ---- 08.2 -----------------------------------------------------------------------------------------------------------


def hits(size: int) -> list[bool]:
    """Which of the samples are classified right: some, and not the same share in each part."""
    right: list[bool] = (np.random.default_rng(size).random(size) < np.linspace(0.2, 1, size)).tolist()
    return right


def share(kind: str, size: int, rank: int, world: int) -> list[int]:
    """The sample numbers of a rank. Together the ranks have every sample, some of them twice."""
    if kind == "uneven":
        return [n for n in range(size) if min(n * n // max(size, 1), world - 1) == rank]
    if kind == "one has none":
        return [n for n in range(size) if n % max(1, world - 1) == rank]
    if kind == "dealt":  # as DistributedSampler does
        return [n % size for n in range(rank, -(-size // world) * world, world)]
    own = [n for n in range(size) if n * world // size == rank]
    # The next rank's samples come before the own ones: whoever cuts off the end loses others than the duplicates.
    return [(own[-1] + 1) % size, *own] if kind == "overlapping" and own and world > 1 else own


def meet(folder: Path, samples: int) -> None:
    """Before each call: nobody is ahead, and the files in the folder are the ranks that have no samples in it."""
    dist.barrier()
    mine = folder / str(dist.get_rank())
    if samples:
        mine.unlink(missing_ok=True)
    else:
        mine.touch()
    dist.barrier()


def try_accuracy(exact_accuracy: Any, folder: Path, cases: list[dict[str, Any]]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for size in SIZES:
        right = torch.tensor(hits(size), dtype=torch.bool)
        for kind in KINDS:
            cases.append({"kind": kind, "size": size})
            numbers = torch.tensor(share(kind, size, rank, world), dtype=torch.int64)
            meet(folder, len(numbers))
            value = exact_accuracy(numbers.clone(), right[numbers], size)
            cases[-1]["value"] = float(value) if isinstance(value, int | float | np.number | torch.Tensor) else None


# ---- 08.3 -----------------------------------------------------------------------------------------------------------


def try_stopping(stopping_class: Any, folder: Path, cases: list[dict[str, Any]]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for scenario in SCENARIOS:
        cases.append({"name": scenario.name, "said": []})
        stopping = stopping_class(scenario.patience)
        mine = [part for part in range(3) if part % world == rank]
        for epoch, means in enumerate(scenario.means):
            sizes = scenario.sizes_in(epoch)
            total = sum(means[part] * sizes[part] for part in mine)
            count = sum(sizes[part] for part in mine)
            meet(folder, count)
            said = stopping.should_stop(float(total), count)
            cases[-1]["said"].append(None if said is None else bool(said))
            if epoch == scenario.stored_after:
                cases[-1]["state"] = repr(stopping.state_dict())
                stopping = restored(stopping_class(scenario.patience), stopping.state_dict())


def restored(stopping: Any, state: Any) -> Any:
    """As from a checkpoint: through a file's bytes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    stopping.load_state_dict(torch.load(buffer, weights_only=False))
    return stopping


if __name__ == "__main__":
    main(*sys.argv[1:])
