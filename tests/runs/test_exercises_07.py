"""Exercises of lesson 07: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

import pytest
from build_notebooks import Lesson
from exercise_cells import Cells

from ddp_helpers.exercises import attempt, bucket_problem

LESSON = Lesson("07_hiding_communication")
SCRIPTS = {"07.1": "scripts/07_choose.py", "07.2": "scripts/07_accumulate.py", "07.3": "scripts/07_count.py"}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
with_solution = CELLS.with_solutions
pytestmark = pytest.mark.usefixtures("notebook_folder")


# ---- 07.1 -----------------------------------------------------------------------------------------------------------

FINISH = """
done = 0.0
for bucket in positions(sizes, cap_mb):
    complete = sum(seconds[:bucket[-1] + 1])
    done = max(done, complete) + alpha + beta * sum(sizes[n] for n in bucket)
return done
"""
CHOOSE = "return min(caps, key=lambda cap: finish(sizes, seconds, cap, alpha, beta))"
EVENTS = """
from itertools import accumulate
ready = list(accumulate(seconds))
free = 0.0
for bucket in positions(sizes, cap_mb):
    if free < ready[bucket[-1]]:
        free = ready[bucket[-1]]
    free += alpha
    for n in bucket:
        free += beta * sizes[n]
return free
"""
LOOP = """
best, soonest = None, float("inf")
for cap in sorted(caps, reverse=True):
    if (time := finish(sizes, seconds, cap, alpha, beta)) < soonest:
        best, soonest = cap, time
return best
"""
MAX = "max(done, complete)"
FINISHES = {
    "after backward": (FINISH.replace("sum(seconds[:bucket[-1] + 1])", "sum(seconds)"), "nothing overlaps"),
    "side by side": (
        FINISH.replace("done = " + MAX, "this = complete").replace(
            "for n in bucket)\n", "for n in bucket)\n    done = max(done, this)\n"
        ),
        "side by side",
    ),
    "from its first gradient": (FINISH.replace("bucket[-1] + 1", "bucket[0] + 1"), "its first gradient is there"),
    "before its last gradient": (
        FINISH.replace("bucket[-1] + 1", "bucket[-1]"),
        "before its last gradient is computed",
    ),
    "messages only": (FINISH.replace(MAX, "done"), "They do not begin at 0"),
    "alpha once": (
        FINISH.replace(" + alpha", "").replace("return done", "return done + alpha"),
        "once for the whole step",
    ),
    "no alpha": (FINISH.replace(" + alpha", ""), "alpha is nowhere in it"),
    "alpha for each gradient": (FINISH.replace("+ alpha", "+ alpha * len(bucket)"), "counted for each gradient"),
    "a bandwidth": (
        FINISH.replace("beta * sum(sizes[n] for n in bucket)", "sum(sizes[n] for n in bucket) / beta"),
        "Multiply.",
    ),
    "only the last bucket": (
        FINISH.replace("done = " + MAX, "done = complete"),
        "What must a bucket wait for besides its gradients?",
    ),
    "its own seconds": (
        FINISH.replace("sum(seconds[:bucket[-1] + 1])", "sum(seconds[n] for n in bucket)"),
        "count from the start of backward",
    ),
    "in turn": (
        FINISH.replace(f"done = {MAX}", "done += sum(seconds[n] for n in bucket); done = done"),
        "nothing overlaps",
    ),
    "milliseconds": (FINISH.replace("return done", "return 1e3 * done"), "1000 times too much"),
    "from the end": (FINISH.replace("return done", "return done - sum(seconds)"), "from its start"),
    "positions": (FINISH.replace("sum(sizes[n] for n in bucket)", "sum(bucket)"), "Those are positions"),
    "nothing returned": (FINISH.replace("return done", "pass"), "finish() or choose() returns nothing"),
    "bytes in MB": (FINISH.replace("beta * sum", "beta / 1e6 * sum"), "none of the usual mistakes"),
}
TENSORS = """
done = torch.zeros(())
for bucket in positions(sizes, cap_mb):
    done = torch.maximum(done, torch.tensor(seconds[:bucket[-1] + 1]).sum()) + alpha
    done = done + beta * sum(sizes[n] for n in bucket)
return done
"""
ARGMIN = """
import numpy as np
times = [finish(sizes, seconds, cap, alpha, beta) for cap in caps]
"""
PAIR = "return min((finish(sizes, seconds, cap, alpha, beta), cap) for cap in caps)"
CHOICES = {
    "the slowest": (CHOOSE.replace("min", "max"), "the slowest of all"),
    "the smallest": ("return caps[0]", "not always the first"),
    "the largest": ("return caps[-1]", "not always the last"),
    "time and cap": (PAIR, "to return one of the caps"),
    "an index": (f"{ARGMIN}return np.argmin(times)", "to return one of the caps"),
    "a time": ("return min(finish(sizes, seconds, cap, alpha, beta) for cap in caps)", "to return one of the caps"),
}


def test_finish_and_choose_in_another_style_pass() -> None:
    verdict = checked("07.1", with_solution("07.1", EVENTS, LOOP))
    assert verdict.passed, verdict


def test_numbers_in_tensors_and_arrays_pass() -> None:
    verdict = checked("07.1", with_solution("07.1", TENSORS, f"{ARGMIN}return np.array(caps)[np.argmin(times)]"))
    assert verdict.passed, verdict


@pytest.mark.parametrize(("finish", "hint"), FINISHES.values(), ids=FINISHES)
def test_each_mistake_of_finish_gets_its_own_hint(finish: str, hint: str) -> None:
    verdict = checked("07.1", with_solution("07.1", finish, CHOOSE))
    assert verdict.kind == "wrong" and hint in verdict.text, verdict


@pytest.mark.parametrize(("choose", "hint"), CHOICES.values(), ids=CHOICES)
def test_each_mistake_of_choose_gets_its_own_hint(choose: str, hint: str) -> None:
    verdict = checked("07.1", with_solution("07.1", FINISH, choose))
    assert verdict.kind == "wrong" and hint in verdict.text, verdict


def test_changed_positions_are_held_against_ddp() -> None:
    text = CELLS.edited("07.1", (">= int(cap_mb * 2**20)", "> 0"))
    verdict = checked("07.1", text)
    assert verdict.kind == "wrong" and ("positions() makes buckets" in verdict.text or "finish() gives" in verdict.text)


@pytest.mark.parametrize("seed", range(20))
def test_the_problems_tell_all_mistakes_apart_and_no_single_cap_is_always_best(seed: int) -> None:
    problems, caps = bucket_problem.problems(seed), bucket_problem.CAPS
    assert len({min(caps, key=lambda cap: bucket_problem.right(problem, cap)) for problem in problems}) >= 2
    for name, mistake in bucket_problem.MISTAKES.items():
        made = [(p, [mistake(p, bucket_problem.buckets(p, cap)) for cap in caps]) for p in problems]
        assert bucket_problem.name_of(made) == name


# ---- 07.2 -----------------------------------------------------------------------------------------------------------

TRAIN = """
for start in range(0, len(micro_batches), every):
    group = micro_batches[start:start + every]
    optimizer.zero_grad()
    for number, (x, y) in enumerate(group, 1):
        with contextlib.nullcontext() if number == len(group) else model.no_sync():
            loss = mse_loss(model(x), y) / len(group)
            loss.backward()
    optimizer.step()
"""
COUNTED = """
count = len(micro_batches)
for n, (x, y) in enumerate(micro_batches):
    last = (n + 1) % every == 0 or n + 1 == count
    size = min(every, count - n // every * every)
    if last:
        (mse_loss(model(x), y) / size).backward()
        optimizer.step()
        optimizer.zero_grad()
    else:
        with model.no_sync():
            (mse_loss(model(x), y) / size).backward()
"""
FLAG = """
for start in range(0, len(micro_batches), every):
    group = micro_batches[start:start + every]
    optimizer.zero_grad()
    for number, (x, y) in enumerate(group, 1):
        model.require_backward_grad_sync = number == len(group)
        (mse_loss(model(x), y) / len(group)).backward()
    optimizer.step()
"""
SYNC = "with contextlib.nullcontext() if number == len(group) else model.no_sync():"
ONE_BACKWARD = """
for start in range(0, len(micro_batches), every):
    group = micro_batches[start:start + every]
    optimizer.zero_grad()
    (sum(mse_loss(model(x), y) for x, y in group) / len(group)).backward()
    optimizer.step()
"""
ONLY_FULL = COUNTED.replace(" or n + 1 == count", "")
TRAININGS = {
    "always": (TRAIN.replace(SYNC, "if True:"), "Who tells DDP to be quiet?"),
    "around backward only": (
        TRAIN.replace(f"        {SYNC}\n            loss =", "        loss =").replace(
            "            loss.backward()", f"        {SYNC}\n            loss.backward()"
        ),
        "not around the forward",
    ),
    "never": (TRAIN.replace(SYNC, "with model.no_sync():"), "DDP never sent gradients"),
    "one backward for all": (ONE_BACKWARD, "all graphs of a group were in memory at once"),
    "after the first": (TRAIN.replace("number == len(group)", "number == 1"), "Who hears of those that follow?"),
    "the short group is left out": (ONLY_FULL, "What became of the short group"),
    "the short group steps alone": (
        ONLY_FULL + "if count % every:\n    optimizer.step()\n",
        "not for the short group at the end",
    ),
    "divided by every": (TRAIN.replace("/ len(group)\n", "/ every\n"), "too was divided by 'every'"),
    "sums": (TRAIN.replace(" / len(group)\n", "\n"), "What makes a mean of their sum?"),
    "never cleared": (TRAIN.replace("    optimizer.zero_grad()\n", ""), "Who clears them?"),
    "divided by all": (TRAIN.replace("/ len(group)\n", "/ len(micro_batches)\n"), "How many make one step?"),
    "divided by ranks": (
        TRAIN.replace("/ len(group)\n", "/ len(group) / torch.distributed.get_world_size()\n"),
        "DDP has already divided by the number of ranks",
    ),
    "the last one only": (
        TRAIN.replace("    optimizer.zero_grad()\n", "").replace(
            "            loss = ", "            optimizer.zero_grad()\n            loss = "
        ),
        "Only the last micro-batch",
    ),
    "a step for each": (TRAIN.replace("    optimizer.step()", "        optimizer.step()"), "When is a group complete?"),
}


@pytest.mark.parametrize("train", [COUNTED, FLAG], ids=["counted", "flag"])
def test_accumulation_in_another_style_passes(train: str) -> None:
    verdict = checked("07.2", with_solution("07.2", train))
    assert verdict.passed, verdict


@pytest.mark.parametrize(("train", "hint"), TRAININGS.values(), ids=TRAININGS)
def test_each_mistake_of_accumulation_gets_its_own_hint(train: str, hint: str) -> None:
    verdict = checked("07.2", with_solution("07.2", train))
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in TRAININGS.values() if other != hint and other in verdict.text]


# ---- 07.3 -----------------------------------------------------------------------------------------------------------

HOOK = """
buffer = bucket.buffer()
state["bytes"] += buffer.numel() * buffer.element_size()
work = dist.all_reduce(buffer.div_(dist.get_world_size()), async_op=True)
return work.get_future().then(lambda future: future.value()[0])
"""
BLOCKING = """
state["bytes"] += sum(gradient.nbytes for gradient in bucket.gradients())
dist.all_reduce(bucket.buffer())
done = torch.futures.Future()
done.set_result(bucket.buffer() / dist.get_world_size())
return done
"""
TORCHS = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
state["bytes"] += bucket.buffer().nbytes
return allreduce_hook(dist.group.WORLD, bucket)
"""
ARRAYS = """
import numpy as np
buffer = bucket.buffer()
state["bytes"] += np.prod(buffer.shape) * buffer.element_size()
parts = [torch.empty_like(buffer) for _ in range(dist.get_world_size())]
return dist.all_gather(parts, buffer, async_op=True).get_future().then(lambda _: torch.stack(parts).mean(0))
"""
TENSOR = BLOCKING.replace(
    "sum(gradient.nbytes for gradient in bucket.gradients())", "torch.tensor(bucket.buffer().nbytes)"
)
DIVIDE = ".div_(dist.get_world_size())"
HOOKS = {
    "a sum": (HOOK.replace(DIVIDE, ""), "Who divides, now that you are the hook?"),
    "always two": (HOOK.replace("dist.get_world_size()", "2"), "There are not always two ranks"),
    "divided twice": (HOOK.replace("value()[0]", "value()[0] / dist.get_world_size()"), "once too often"),
    "nothing sent": (
        HOOK.replace(
            f"work = dist.all_reduce(buffer{DIVIDE}, async_op=True)",
            "work = torch.futures.Future()\nwork.set_result(buffer)",
        ).replace("work.get_future().then(lambda future: future.value()[0])", "work"),
        "Nothing came from the others",
    ),
    "numbers": (HOOK.replace(" * buffer.element_size()", ""), "How many bytes has each?"),
    "always four": (HOOK.replace("buffer.element_size()", "4"), "Not every number has 4 bytes"),
    "one step's": (
        HOOK.replace("state[", 'if bucket.index() == 0:\n    state["bytes"] = 0\nstate[', 1),
        "That is one step's",
    ),
    "in 16 bits": (
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
        'state["bytes"] += bucket.buffer().nbytes\nreturn fp16_compress_hook(None, bucket)\n',
        "In which precision was it sent?",
    ),
    "in 32 bits": (
        BLOCKING.replace("dist.all_reduce(bucket.buffer())", "c = bucket.buffer().float()\ndist.all_reduce(c)").replace(
            "bucket.buffer() /", "c.to(bucket.buffer().dtype) /"
        ),
        "In which precision was it sent?",
    ),
    "as the ring carries": (
        HOOK.replace("numel()", "numel() * 2 * (dist.get_world_size() - 1) // dist.get_world_size()"),
        "what the ring carries",
    ),
    "eight": (HOOK.replace("buffer.numel() * buffer.element_size()", "8"), "Does your number come from this bucket?"),
    "no async_op": (HOOK.replace(", async_op=True", ""), "Only async_op=True gives a work"),
    "its state for torch's own": (TORCHS.replace("dist.group.WORLD", "state"), "a process group, or None"),
    "the last bucket only": (HOOK.replace("+=", "="), "added to, or replaced?"),
    "of all ranks": (
        HOOK.replace("buffer.element_size()", "buffer.element_size() * dist.get_world_size()"),
        "count this rank's",
    ),
    "nothing counted": (HOOK.replace('state["bytes"] += ', ""), "Nothing was counted"),
    "no future": (HOOK.replace("return work", "work.wait()\nreturn buffer\nwork"), "DDP wants a Future: work"),
    "nothing returned": (HOOK.replace("return work", "return None\nwork"), "DDP wants a Future: work"),
    "a list": (HOOK.replace(".then(lambda future: future.value()[0])", ""), "a list with one"),
}


@pytest.mark.parametrize(
    "hook", [BLOCKING, TORCHS, ARRAYS, TENSOR], ids=["blocking", "torch's own", "arrays", "tensor"]
)
def test_a_hook_in_another_style_passes(hook: str) -> None:
    verdict = checked("07.3", with_solution("07.3", hook))
    assert verdict.passed, verdict


@pytest.mark.parametrize(("hook", "hint"), HOOKS.values(), ids=HOOKS)
def test_each_mistake_of_a_hook_gets_its_own_hint(hook: str, hint: str) -> None:
    verdict = checked("07.3", with_solution("07.3", hook))
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in HOOKS.values() if other != hint and other in verdict.text]


def test_a_future_that_nobody_completes_is_told_from_a_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "SECONDS", 8)
    verdict = checked("07.3", with_solution("07.3", BLOCKING.replace("done.set_result", "")))
    assert verdict.kind == "wrong" and "a Future of yours that nobody completes" in verdict.text, verdict
    assert "``" not in verdict.text and "A rank waits in a collective" not in verdict.text


def test_a_check_runs_the_script_anew_each_time() -> None:
    assert checked("07.3", CELLS.solved("07.3")).passed
    assert not checked("07.3", with_solution("07.3", HOOKS["a sum"][0])).passed
