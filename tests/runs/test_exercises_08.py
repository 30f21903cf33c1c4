"""Exercises of lesson 08: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_notebooks import Lesson
from exercise_cells import Cells

LESSON = Lesson("08_saving_and_resuming")
SCRIPTS = {
    "08.1": "scripts/08_resume.py",
    "08.2": "scripts/08_accuracy.py",
    "08.3": "scripts/08_early_stopping.py",
}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
edited = CELLS.edited
pytestmark = pytest.mark.usefixtures("notebook_folder")


SAVE_FILE_A_RANK = (
    """
    mine = {"random": torch.get_rng_state(), "epochs": epochs_done}
    torch.save(mine, f"{path}.{dist.get_rank()}")
    dist.barrier()
    if dist.get_rank() == 0:
        parts = {"model": model.module, "optimizer": optimizer, "scheduler": scheduler}
        torch.save({name: part.state_dict() for name, part in parts.items()} | mine, path)
    dist.barrier()
    """,
    """
    if os.path.exists(path):
        saved = torch.load(path, weights_only=True)
        for name, part in (("model", model.module), ("optimizer", optimizer), ("scheduler", scheduler)):
            part.load_state_dict(saved[name])
        torch.set_rng_state(torch.load(f"{path}.{dist.get_rank()}")["random"])
        epochs_done = saved["epochs"]
    """,
)
GATHER_ON_ZERO = (
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    states = [None] * world if rank == 0 else None
    dist.gather_object(torch.get_rng_state(), states, dst=0)
    if rank == 0:
        with open(path + "-new", "wb") as file:
            torch.save([epochs_done, states, {"net": model.module.state_dict()}, optimizer.state_dict(),
                        scheduler.state_dict()], file)
        os.rename(path + "-new", path)
    dist.barrier()
    """,
    """
    dist.barrier()
    if not os.path.isfile(path):
        return 0
    epochs_done, states, nets, steps, rates = torch.load(path, map_location="cpu")
    model.module.load_state_dict(nets["net"])
    optimizer.load_state_dict(steps)
    scheduler.load_state_dict(rates)
    torch.set_rng_state(states[dist.get_rank()])
    """,
)
BYTES_BY_HAND = (
    """
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, torch.get_rng_state())
    if dist.get_rank() == 0:
        import io
        parts = {"model": model.module, "optimizer": optimizer, "scheduler": scheduler}
        whole = {name: part.state_dict() for name, part in parts.items()} | {"random": states, "epochs": epochs_done}
        buffer = io.BytesIO()
        torch.save(whole, buffer)
        with open(path + ".tmp", "wb") as file:
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
    dist.barrier()
    """,
    """
    if os.path.exists(path):
        saved = torch.load(path)
        for name, part in (("model", model.module), ("optimizer", optimizer), ("scheduler", scheduler)):
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["random"][dist.get_rank()])
        epochs_done = saved["epochs"]
    """,
)
SORT_AND_KEEP_ONE = """
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, dict(zip(numbers.tolist(), right.tolist())))
    known = {}
    for each in shares:
        known.update(each)
    return sum(known.values()) / len(known)
    """
PAD_AND_GATHER = """
    longest = torch.tensor(len(numbers))
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    padded = torch.full((int(longest), 2), -1)
    padded[:len(numbers)] = torch.stack([numbers, right.long()], 1)
    every = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(every, padded)
    unique = torch.cat(every).unique(dim=0)
    unique = unique[unique[:, 0] >= 0]
    return unique[:, 1].double().mean()
    """
DECIDES_AFTER_GATHER = (
    """
        pairs = [None] * dist.get_world_size()
        dist.all_gather_object(pairs, (loss_sum, count))
        loss = sum(p[0] for p in pairs) / sum(p[1] for p in pairs)
        self.waited = 0 if loss < self.best else self.waited + 1
        self.best = min(loss, self.best)
        return self.waited == self.patience
    """,
    "return vars(self)\n",
    "vars(self).update(state)\n",
)
RANK_0_DECIDES = (
    """
        total = torch.tensor([loss_sum, count])
        dist.reduce(total, dst=0)
        loss = total[0] / total[1]
        self.waited = 0 if loss < self.best else self.waited + 1
        self.best = min(float(loss), self.best)
        stop = torch.tensor(self.waited >= self.patience)
        dist.broadcast(stop, src=0)
        return stop
    """,
    *DECIDES_AFTER_GATHER[1:],
)


def solved_with(exercise: str, *solutions: str) -> str:
    return CELLS.with_solutions(exercise, *solutions)


OTHER_STYLES = {
    "08.1 a list gathered on rank 0": ("08.1", GATHER_ON_ZERO),
    "08.1 bytes written by hand": ("08.1", BYTES_BY_HAND),
    "08.2 a dict of objects": ("08.2", (SORT_AND_KEEP_ONE,)),
    "08.2 padded tensors": ("08.2", (PAD_AND_GATHER,)),
    "08.3 gathers objects": ("08.3", DECIDES_AFTER_GATHER),
    "08.3 rank 0 decides for all": ("08.3", RANK_0_DECIDES),
}


@pytest.mark.parametrize(("exercise", "solutions"), OTHER_STYLES.values(), ids=OTHER_STYLES)
def test_a_right_answer_in_another_style_passes(exercise: str, solutions: tuple[str, ...]) -> None:
    verdict = checked(exercise, solved_with(exercise, *solutions))
    assert verdict.passed, verdict
    assert not list(Path("runs").glob("**/*.pt"))  # the checkpoints of the check are not the learner's


# What is wrong, the changes to the lesson's solution, and words that only this mistake's hint has.
Change = tuple[str, str]
RENAME = '        }, path + ".tmp")\n        os.replace(path + ".tmp", path)\n'
RENAME_APART = """\
        }, path + ".tmp")
    dist.barrier()
    if dist.get_rank() == 0:
        os.replace(path + ".tmp", path)
"""
EITHER = """\
        try:
            saved = torch.load(path, map_location="cpu")
        except Exception:
            saved = torch.load(path + ".old", map_location="cpu")
"""
NEWEST = """\
    import glob
    names = sorted(glob.glob(path + ".*"))
    if names:
"""
RESUME: dict[str, tuple[tuple[Change, ...], str]] = {
    "no optimizer": (
        (('        optimizer.load_state_dict(saved["optimizer"])\n', ""),),
        "the optimizer's state is as new on rank 0",
    ),
    "no scheduler": (
        (('        scheduler.load_state_dict(saved["scheduler"])\n', ""),),
        "the scheduler's state is as new on rank 0",
    ),
    "no random state": (
        (('        torch.set_rng_state(saved["random"][dist.get_rank()])\n', ""),),
        "torch's random state is as new on rank 0",
    ),
    "rank 0's random state for all": (
        (('saved["random"][dist.get_rank()]', 'saved["random"][0]'),),
        "rank 1 has rank 0's random state",
    ),
    "loads on rank 0 only": (
        (
            (
                '        model.module.load_state_dict(saved["model"])\n',
                '        if dist.get_rank() == 0:\n            model.module.load_state_dict(saved["model"])\n',
            ),
        ),
        "the model's weights are as new on rank 1",
    ),
    "the last epoch again": (
        (('epochs_done = saved["epochs_done"]', 'epochs_done = saved["epochs_done"] - 1'),),
        "resume() returned 1 on rank 0",
    ),
    "wrapped names": (
        (('"model": model.module.state_dict()', '"model": model.state_dict()'), ("model.module.load", "model.load")),
        'names that begin with "module."',
    ),
    "not atomic": (((RENAME, "        }, path)\n"),), "The file at path is torn, and the one before it is gone"),
    "removes the old file first": (
        (
            (
                "        torch.save({",
                "        if os.path.exists(path):\n            os.remove(path)\n        torch.save({",
            ),
        ),
        "the old file was gone before the new one was there",
    ),
    "all ranks write": (
        (("    if dist.get_rank() == 0:\n", "    if True:\n"), (RENAME, "        }, path)\n")),
        "2 ranks write checkpoint.pt, or rename onto it. One file, one writer.",
    ),
    "never renamed": (((RENAME, '        }, path + ".tmp")\n'),), "save() was called 2 times"),
    "no barrier": (
        ((RENAME + "    dist.barrier()\n", RENAME),),
        "save() has returned on rank 1 before the file was there",
    ),
    "the barrier before the save": (
        (
            (RENAME + "    dist.barrier()\n", RENAME),
            ("    if dist.get_rank() == 0:\n", "    dist.barrier()\n    if dist.get_rank() == 0:\n"),
        ),
        "save() has returned on rank 1 before the file was there",
    ),
    "fails without a file": (
        (("    if os.path.exists(path):\n", "    if True:\n"),),
        "That was before any kill",
    ),
    "a barrier before the rename only": (
        ((RENAME + "    dist.barrier()\n", RENAME_APART),),
        "save() has returned on rank 1 before the file was there",
    ),
    "copies over the old file": (
        (
            ("import os\n", "import os\nimport shutil\n"),
            ("os.replace(path", "shutil.copyfile(path"),
        ),
        "The file at path is torn, and the one before it is gone",
    ),
    "written in place by another program": (
        (
            ("import os\n", "import os\nimport subprocess\n"),
            ('os.replace(path + ".tmp", path)', 'subprocess.run(["cp", path + ".tmp", path], check=True)'),
        ),
        "written over in place",
    ),
    "all ranks rename": (
        (
            ("    if dist.get_rank() == 0:\n", "    if True:\n"),
            (RENAME, RENAME.replace('".tmp"', "str(dist.get_rank())")),
        ),
        "2 ranks write checkpoint.pt, or rename onto it. One file, one writer.",
    ),
    "rows of one tensor": (
        (('"random": states,', '"random": torch.stack(states),'),),
        ".clone() the row",
    ),
    "pickled": (
        (
            ("import os\n", "import os\nimport pickle\n"),
            ("        torch.save({", '        open(path + ".tmp", "wb").write(pickle.dumps({'),
            (RENAME, '        }))\n        os.replace(path + ".tmp", path)\n'),
            ('torch.load(path, map_location="cpu")', 'pickle.load(open(path, "rb"))'),
        ),
        "Write it with torch.save.",
    ),
    "a number of its own": (
        (('epochs_done = saved["epochs_done"]', "epochs_done = 2"),),
        "resume() returned 2 on rank 0. When the last whole checkpoint was saved, 3 epochs",
    ),
    "the temporary file elsewhere": (
        (
            ("import os\n", "import os\nimport shutil\n"),
            (RENAME, '        }, "runs/last.tmp")\n        shutil.move("runs/last.tmp", path)\n'),
        ),
        "in another folder than path",
    ),
    "the old file aside, and read again": (
        (
            (
                "        torch.save({",
                '        if os.path.exists(path):\n            os.replace(path, path + ".old")\n        torch.save({',
            ),
            (RENAME, "        }, path)\n"),
            ('        saved = torch.load(path, map_location="cpu")\n', EITHER),
        ),
        "stays so until the next save",
    ),
    "a file for each epoch": (
        (
            (RENAME, '        }, f"{path}.{epochs_done}")\n'),
            ("    if os.path.exists(path):\n", NEWEST),
            ('torch.load(path, map_location="cpu")', "torch.load(names[-1])"),
        ),
        "Others look there",
    ),
    "resumes on rank 0 only": (
        (("    if os.path.exists(path):\n", "    if dist.get_rank() == 0 and os.path.exists(path):\n"),),
        "returned 2 on rank 0 and 0 on rank 1. All ranks must begin at the same epoch",
    ),
    "two files of different epochs": (
        (
            (
                "    if dist.get_rank() == 0:\n",
                '    torch.save(torch.get_rng_state(), f"{path}.{dist.get_rank()}")\n    if dist.get_rank() == 0:\n',
            ),
            ('saved["random"][dist.get_rank()]', 'torch.load(f"{path}.{dist.get_rank()}")'),
        ),
        "your files are of different epochs",
    ),
    "whole objects": (
        (
            ("model.module.state_dict()", "model.module"),
            ("optimizer.state_dict()", "optimizer"),
            ("scheduler.state_dict()", "scheduler"),
        ),
        "Save state_dict()s, and not the objects.",
    ),
    "a mistake in the code": ((('saved["scheduler"]', 'saved["schedule"]'),), "KeyError"),
}
MAX = "    known = torch.zeros(size)\n    known[numbers] = right.float()\n"
ACCURACY: dict[str, tuple[str, str]] = {
    "its own only": ("return right.double().mean().item() if len(right) else 0.0\n", "accuracy of its own samples"),
    "mean of means": (
        """
        mean = right.double().mean() if len(right) else torch.zeros((), dtype=torch.float64)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        return mean.item()
        """,
        "a rank with few samples weighs as much",
    ),
    "mean of means, nan": (
        """
        mean = right.double().mean()
        dist.all_reduce(mean)
        return mean.item() / dist.get_world_size()
        """,
        "a rank with few samples weighs as much",
    ),
    "counts duplicates": (
        """
        total = torch.tensor([right.sum(), len(right)], dtype=torch.float64)
        dist.all_reduce(total)
        return (total[0] / total[1]).item()
        """,
        "of the samples counted are duplicates. (Tensors are never equal as keys of a dict or a set: .tolist() first.)",
    ),
    "duplicates among the hits": (
        """
        total = right.double().sum()
        dist.all_reduce(total)
        return total.item() / size
        """,
        "Duplicates are among the hits",
    ),
    "cuts off the end": (
        """
        shares = [None] * dist.get_world_size()
        dist.all_gather_object(shares, right.tolist())
        return sum(sum(shares, [])[:size]) / size
        """,
        "What you cut off are not the duplicates",
    ),
    "divides twice": (
        """
        known = torch.zeros(size)
        known[numbers] = right.float()
        dist.all_reduce(known, op=dist.ReduceOp.MAX)
        return known.mean().item() / dist.get_world_size()
        """,
        "What is divided twice?",
    ),
    "only rank 0 knows": (
        """
        known = torch.zeros(size)
        known[numbers] = right.float()
        dist.reduce(known, dst=0, op=dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            return known.mean().item()
        """,
        "rank 1 gets no number",
    ),
    "an error": ("return right.double().mean().item() / lenght\n", "That was where"),
    "tensors of different lengths": (
        """
        every = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
        dist.all_gather(every, numbers)
        return right.double().mean().item()
        """,
        "tensors of different lengths",
    ),
}
STOPPING: dict[str, tuple[tuple[Change, ...], str]] = {
    "its own loss": (
        (("        dist.all_reduce(total)\n", ""), ("(total[0] / total[1]).item()", "loss_sum / max(count, 1)")),
        "From whose loss does each decide?",
    ),
    "rank 0's loss": (
        (("        dist.all_reduce(total)\n", "        dist.broadcast(total, src=0)\n"),),
        "rank 0's own loss would say so",
    ),
    "a vote": (
        (
            ("        dist.all_reduce(total)\n", ""),
            ("(total[0] / total[1]).item()", "loss_sum / max(count, 1)"),
            (
                "        return self.waited >= self.patience\n",
                "        stop = torch.tensor(int(self.waited >= self.patience))\n"
                "        dist.all_reduce(stop, op=dist.ReduceOp.MAX)\n"
                "        return bool(stop)\n",
            ),
        ),
        "rank 0's own loss would say so",
    ),
    "a sum": ((("(total[0] / total[1]).item()", "total[0].item()"),), "What do you divide by?"),
    "whole numbers": ((("dtype=torch.float64", "dtype=torch.int64"),), "See the dtype"),
    "a mean of means": (
        (("[loss_sum, count]", "[loss_sum / count if count else 0, count > 0]"),),
        "the mean of the ranks' means",
    ),
    "never begins anew": (
        (("            self.best, self.waited = loss, 0\n", "            self.best = loss\n"),),
        "Does the waiting begin anew",
    ),
    "compares with the last": (
        (("            self.waited += 1\n", "            self.waited += 1\n            self.best = loss\n"),),
        "Better than the last one, or than the best one?",
    ),
    "a tie is better": ((("loss < self.best", "loss <= self.best"),), "only equals the best one"),
    "one epoch late": (
        (("self.waited >= self.patience", "self.waited > self.patience"),),
        "without an improvement are too many?",
    ),
    "forgets the waiting": (
        (('{"best": self.best, "waited": self.waited}', '{"best": self.best, "waited": 0}'),),
        "What does it have to remember?",
    ),
    "forgets the best": (
        (('{"best": self.best, "waited": self.waited}', '{"best": float("inf"), "waited": self.waited}'),),
        "What does it have to remember?",
    ),
    "returns nothing": ((("        return self.waited >= self.patience\n", ""),), "should_stop returns None"),
    "divides by nothing": (
        (("[loss_sum, count]", "[loss_sum / count, 1]"),),
        "ZeroDivisionError: float division by zero",
    ),
}


def assert_own_hint(exercise: str, text: str, hint: str, hints: set[str]) -> None:
    verdict = checked(exercise, text)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for other in hints if other not in hint and other in verdict.text], verdict


@pytest.mark.parametrize(("changes", "hint"), RESUME.values(), ids=RESUME)
def test_a_mistake_in_saving_or_resuming_gets_its_own_hint(changes: tuple[Change, ...], hint: str) -> None:
    assert_own_hint("08.1", edited("08.1", *changes), hint, {hint for _, hint in RESUME.values()})


@pytest.mark.parametrize(("solution", "hint"), ACCURACY.values(), ids=ACCURACY)
def test_a_wrong_accuracy_gets_its_own_hint(solution: str, hint: str) -> None:
    assert_own_hint("08.2", solved_with("08.2", solution), hint, {hint for _, hint in ACCURACY.values()})


@pytest.mark.parametrize(("changes", "hint"), STOPPING.values(), ids=STOPPING)
def test_a_wrong_decision_gets_its_own_hint(changes: tuple[Change, ...], hint: str) -> None:
    assert_own_hint("08.3", edited("08.3", *changes), hint, {hint for _, hint in STOPPING.values()})


def test_a_rank_without_samples_is_named_where_it_fails_or_has_left_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes, _ = STOPPING["divides by nothing"]
    assert "Rank 1 had no samples there." in checked("08.3", edited("08.3", *changes)).text
    monkeypatch.setattr("ddp_helpers.exercises.attempt.SECONDS", 5)
    left = MAX.replace("    known =", "    if not len(numbers):\n        return 0.0\n    known =", 1)
    text = checked("08.2", edited("08.2", (MAX, left))).text
    assert "did not end" in text and text.endswith("Rank 1 had no samples there."), text


def test_a_file_for_each_rank_is_as_good_if_the_main_one_is_renamed() -> None:
    save, resume = SAVE_FILE_A_RANK
    atomic = save.replace("| mine, path)", '| mine, path + ".tmp")\n        os.replace(path + ".tmp", path)')
    own = atomic.replace('f"{path}.{dist.get_rank()}"', 'f"{path}.{epochs_done}.{dist.get_rank()}"')
    read = resume.replace('f"{path}.{dist.get_rank()}"', "f\"{path}.{saved['epochs']}.{dist.get_rank()}\"")
    verdict = checked("08.1", solved_with("08.1", own, read))
    assert verdict.passed, verdict
