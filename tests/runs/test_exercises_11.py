"""Exercises of lesson 11: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from build_notebooks import Lesson, read_source
from exercise_cells import Cells

from ddp_helpers import RankFailed, Run, check, launch

LESSON = Lesson("11_a_vision_transformer")
SCRIPTS = {"11.1": "scripts/11_step.py", "11.2": "scripts/11_batches.py"}
CELLS = Cells(LESSON, SCRIPTS)
checked, edited, with_solutions = CELLS.checked, CELLS.edited, CELLS.with_solutions
pytestmark = pytest.mark.usefixtures("notebook_folder")


MEANS_AND_WEIGHTS = """
    mine = sum(len(y) for _, y in micro_batches)
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, mine)
    model.zero_grad()
    assert all(model.module(x).isfinite().all() for x, _ in micro_batches)  # each graph is dropped at once
    summed = 0.0
    for x, y in micro_batches[:-1]:
        with model.no_sync():
            loss = cross_entropy(model(x), y) * len(y)
            loss.backward()
        summed += loss.item()
    x, y = micro_batches[-1]
    loss = cross_entropy(model(x), y) * len(y)
    loss.backward()
    summed += loss.item()
    for parameter in model.parameters():
        parameter.grad *= dist.get_world_size() / sum(counts)
    clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    sums = [None] * dist.get_world_size()
    dist.all_gather_object(sums, summed)
    return sum(sums) / sum(counts)
    """
SLICES = """
    epoch = done // (len(sampler) // batch_size)
    skip = done % (len(sampler) // batch_size)
    while True:
        sampler.set_epoch(epoch)
        stream = iter(sampler)
        while len(batch := list(islice(stream, batch_size))) == batch_size:
            if skip:
                skip -= 1
            else:
                yield batch
        epoch += 1
    """
OTHER_STYLES = {"11.1": MEANS_AND_WEIGHTS, "11.2": SLICES}


@pytest.mark.parametrize(("exercise", "solution"), OTHER_STYLES.items(), ids=OTHER_STYLES)
def test_a_right_answer_in_another_style_passes(exercise: str, solution: str) -> None:
    verdict = checked(exercise, with_solutions(exercise, solution))
    assert verdict.passed, verdict


# What is wrong, the changes to the lesson's solution, and words that only this mistake's hint has.
Changes = tuple[tuple[str, str], ...]
CLIP = "    clip_grad_norm_(model.parameters(), max_norm)\n"
WEIGHT = "(loss * dist.get_world_size() / total).backward()"
STEP: dict[str, tuple[Changes, str]] = {
    "sends every time": ((("nullcontext() if number == len(micro_batches) else model.no_sync()", "nullcontext()"),),
                         "Only the last micro-batch should send."),
    "not clipped": (((CLIP, ""),), "an unclipped gradient"),
    "clips each micro-batch": (
        ((CLIP, ""), (WEIGHT, WEIGHT + "\n            clip_grad_norm_(model.parameters(), max_norm)")),
        "Clip once, by its norm: the whole gradient",
    ),
    "never set to zero": ((("    optimizer.zero_grad()\n", ""),), "the first one's gradient is still in it"),
    "every micro-batch weighs the same": (
        ((WEIGHT, "(loss / len(y) / len(micro_batches)).backward()"),),
        "Every micro-batch weighs the same",
    ),
    "every rank weighs the same": (
        ((WEIGHT, "(loss / sum(len(y) for _, y in micro_batches)).backward()"),),
        "Every rank weighs the same",
    ),
    "forgets that DDP averages": (((WEIGHT, "(loss / total).backward()"),), "too small by the number of ranks: you"),
    "a sum of means": (((WEIGHT, "(loss / len(y)).backward()"),), "What is a sum of means?"),
    "no step": ((("    optimizer.step()\n", ""),), "They have not changed at all."),
    "its own loss": (
        (("    dist.all_reduce(loss)\n", ""), ("(loss / total)", "(loss / sum(len(y) for _, y in micro_batches))")),
        "is it the loss of this rank's samples?",
    ),
    "the loss averaged": (
        (("dist.all_reduce(loss)", "dist.all_reduce(loss, op=dist.ReduceOp.AVG)"),),
        "is true. It is too small by the number of ranks.",
    ),
    "all at once": (
        (("enumerate(micro_batches, 1)", "enumerate([[torch.cat(parts) for parts in zip(*micro_batches)]], 1)"),
         ("nullcontext() if number == len(micro_batches) else model.no_sync()", "nullcontext()")),
        "There is no memory for more",
    ),
    "never sends": ((("nullcontext() if number == len(micro_batches) else model.no_sync()", "model.no_sync()"),),
                    "DDP sends nothing at all"),
    "set to zero in the loop": (
        (("    optimizer.zero_grad()\n", ""), (WEIGHT, "optimizer.zero_grad()\n            " + WEIGHT)),
        "Only each rank's last micro-batch is in the gradient",
    ),
    "a step for each": ((("    optimizer.step()\n", ""), (WEIGHT, WEIGHT + "\n            optimizer.step()")),
                        "One is asked for"),
    "clips each value": (((CLIP, CLIP.replace("grad_norm_", "grad_value_")),
                          ("import clip_grad_norm_", "import clip_grad_value_")), "Without clipping they were"),
    "a collective in the loop": (((WEIGHT, "dist.all_reduce(loss.detach().clone())\n            " + WEIGHT),),
                                 "Does each rank call as many collectives"),
    "backward at the end": (
        (("        with nullcontext() if number == len(micro_batches) else model.no_sync():\n"
          '            loss = cross_entropy(model(x), y, reduction="sum")\n            ' + WEIGHT + "\n"
          "        sums[0] += loss.detach()\n",
          '        sums[0] += cross_entropy(model(x), y, reduction="sum")\n'
          "    (sums[0] * dist.get_world_size() / total).backward()\n    sums = sums.detach()\n"),),
        "There is memory for one: backward() after each.",
    ),
    "averages by hand": (
        (("nullcontext() if number == len(micro_batches) else model.no_sync()", "model.no_sync()"),
         (WEIGHT, "(loss / total).backward()"),
         (CLIP, "    for parameter in model.parameters():\n        dist.all_reduce(parameter.grad)\n" + CLIP)),
        "the weights are right, but DDP sent nothing",
    ),
    "the loss after the step": (
        (("    loss = sums[:1].clone()\n",
          '    with torch.no_grad():\n        loss = '
          'sum(cross_entropy(model.module(x), y, reduction="sum") for x, y in micro_batches)\n'),
         ("(loss / total).item()", "loss.item() / total.item()")),
        "It is the loss after the step.",
    ),
    "the loss not divided by the ranks": ((("(loss / total).item()", "(loss * dist.get_world_size() / total).item()"),),
                                          "is true. It is too large by the number of ranks."),
    "two ranks, always": ((("loss * dist.get_world_size() / total", "loss * 2 / total"),), "Is a 2 written somewhere?"),
    "a loss of two ranks": ((("(loss / total).item()", "(loss * dist.get_world_size() / total).item() / 2"),),
                            "With 2 processes it was right."),
    "no loss": ((("    return (loss / total).item()\n", ""),), "returns no loss"),
}  # fmt: skip
YIELD = "            yield mine[step * batch_size : (step + 1) * batch_size]\n"
BODY = (
    """    steps = len(sampler) // batch_size
    epoch, skipped = divmod(done, steps)
    while True:
        sampler.set_epoch(epoch)
        mine = list(sampler)
        for step in range(skipped, steps):
"""
    + YIELD
    + "        epoch, skipped = epoch + 1, 0\n"
)
ROW = """    def row():
        for epoch in range(10**6):
            sampler.set_epoch(epoch)
            yield from sampler
    numbers = islice(row(), done * batch_size, None)
    while True:
        yield list(islice(numbers, batch_size))
"""
BATCHES: dict[str, tuple[Changes, str]] = {
    "from the beginning": ((("divmod(done, steps)", "0, 0"),), "begins at the very beginning"),
    "the epoch anew": ((("divmod(done, steps)", "done // steps, 0"),), "begins that epoch anew"),
    "leaves out the rest": ((("divmod(done, steps)", "-(-done // steps), 0"),), "leaves out the rest of the epoch"),
    "one step off": ((("divmod(done, steps)", "divmod(done + 1, steps)"),), "one step off"),
    "no set_epoch": ((("        sampler.set_epoch(epoch)\n", ""),), "When is set_epoch called"),
    "set_epoch once": (
        (("    while True:\n        sampler.set_epoch(epoch)\n", "    sampler.set_epoch(epoch)\n    while True:\n"),),
        "When is set_epoch called",
    ),
    "skips in every epoch": ((("epoch + 1, 0\n", "epoch + 1, skipped\n"),), "What changes when epoch"),
    "one epoch only": ((("        epoch, skipped = epoch + 1, 0\n", "        break\n"),), "and then nothing"),
    "an epoch of the whole dataset": (
        (("len(sampler) // batch_size", "len(sampler.dataset) // batch_size"),
         ("range(skipped, steps)", "range(skipped, len(mine) // batch_size)")),
        "How many steps has an epoch?",
    ),
    "keeps the rest": (
        (("len(sampler) // batch_size", "-(-len(sampler) // batch_size)"),),
        "It is the rest of an epoch",
    ),
    "steps of the samples that all share": (
        (("len(sampler) // batch_size", "len(sampler.dataset) // (batch_size * sampler.num_replicas)"),),
        "How many samples does the sampler give each rank?",
    ),
    "three epochs": ((("    while True:", "    for _ in range(3):"),), "and then nothing"),
    "the rest joined with the next epoch": (((BODY, ROW),), "is joined with the next one"),
    "numbers": (((YIELD, YIELD.replace("yield", "yield from")),), "in place of a batch"),
    "dealt out twice": ((("list(sampler)", "list(sampler)[dist.get_rank()::dist.get_world_size()]"),
                         ("len(sampler) // batch_size", "len(sampler) // dist.get_world_size() // batch_size")),
                        "The sampler has dealt them out already"),
    "a list": (((YIELD, "            return [mine]\n"),), "gets 1 batch, and then nothing"),
}  # fmt: skip


def assert_own_hint(exercise: str, text: str, hint: str) -> None:
    verdict = checked(exercise, text)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict


@pytest.mark.parametrize(("changes", "hint"), STEP.values(), ids=STEP)
def test_a_mistake_in_the_step_gets_its_own_hint(changes: Changes, hint: str) -> None:
    assert_own_hint("11.1", edited("11.1", *changes), hint)


@pytest.mark.parametrize(("changes", "hint"), BATCHES.values(), ids=BATCHES)
def test_a_mistake_in_the_batches_gets_its_own_hint(changes: Changes, hint: str) -> None:
    assert_own_hint("11.2", edited("11.2", *changes), hint)


def choice(ranks: object, images: object, rate: object, precision: object = "fp32") -> dict[str, object]:
    return {"ranks": ranks, "images per rank": images, "learning rate": rate, "precision": precision}


@pytest.mark.parametrize("right", [choice(4, 32, 0.012, "bf16"), choice(4, 32, 0.008, "bf16")])
def test_a_choice_that_reaches_the_target_passes_and_hears_how_well(
    right: object, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = check("11.3", right)
    assert verdict.passed, verdict
    assert re.search(
        r"45 steps with 128 images each: [789]\d\.\d% of the held-out digits are right", capsys.readouterr().out
    )


SHORT = {
    "does not fit": (choice(2, 32, 0.01), "a rank holds 16"),
    "one rank": (choice(1, 32, 0.012, "bf16"), "How can a step learn from more"),
    "too small steps": (choice(4, 32, 0.0003, "bf16"), "too small steps"),
    "a small learning rate": (choice(4, 32, 0.0025, "bf16"), "can often take a larger learning rate"),
    "too large steps": (choice(4, 32, 0.1, "bf16"), "too large steps"),
    "true": (choice(True, 16, 0.01), "1, 2 or 4"),
    "half a rank": (choice(2.0, 32, 0.01), "1, 2 or 4"),
    "three ranks": (choice(3, 32, 0.01), "1, 2 or 4"),
    "no such precision": (choice(2, 32, 0.01, "fp8"), '"fp32" or "bf16"'),
    "half an image": (choice(2, 0.5, 0.01), "a whole number"),
    "no dict": (4, "The choice is a dict"),
}


@pytest.mark.parametrize(("answer", "hint"), SHORT.values(), ids=SHORT)
def test_a_choice_that_falls_short_hears_why(answer: object, hint: str) -> None:
    verdict = check("11.3", answer)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict


@pytest.mark.parametrize("untouched", [..., choice(..., ..., ..., ...)], ids=["dots", "dots inside"])
def test_a_choice_that_was_not_made_is_not_attempted(untouched: object) -> None:
    assert check("11.3", untouched).kind == "unattempted"


# ---- the lesson's own training --------------------------------------------------------------------------------------


def write_the_lessons_files(last: bool = False) -> None:
    """Of two cells for one file, the first; or the last."""
    cells = read_source(LESSON).cells
    for cell in cells if last else reversed(cells):
        first, _, text = cell.source.partition("\n")
        if first.startswith("%%writefile"):
            Path(first.split()[1]).write_text(text, encoding="utf-8")
    Path("scripts/11_vit.py").write_text(CELLS.text("scripts/11_vit.py"), encoding="utf-8")


def train(*arguments: str) -> Run:
    return launch("scripts/11_vit.py", "batch=512", *arguments, nproc_per_node=2, returns=["result"])


def test_a_complete_training_started_again_has_nothing_to_do_and_keeps_what_it_learned() -> None:
    write_the_lessons_files()
    first, again = (train("epochs=1", "path=runs/whole.pt") for _ in range(2))
    assert "1 of 1 epochs done, nothing left to do" in again.ranks[0].stdout
    trained, kept = (run.ranks[0].returned["result"] for run in (first, again))
    assert kept["accuracy"] == trained["accuracy"] and kept["messages"] == 0
    assert all(torch.equal(kept["weights"][name], weight) for name, weight in trained["weights"].items())
    with pytest.raises(RankFailed, match="a training of 1 epochs, not 2"):
        train("epochs=2", "path=runs/whole.pt")


def test_unequal_parts_make_the_same_step_as_one_part() -> None:
    write_the_lessons_files()
    whole, parts = (train("epochs=1", f"parts={parts}").ranks[0].returned["result"]["weights"] for parts in (1, 3))
    assert all(torch.allclose(parts[name], weight, atol=1e-4) for name, weight in whole.items())


def test_an_argument_that_does_not_exist_is_named() -> None:
    write_the_lessons_files()
    with pytest.raises(RankFailed, match="no argument part; there are epochs, seed"):
        train("part=2")


def test_images_that_are_not_there_are_reported_once() -> None:
    write_the_lessons_files(last=True)
    first, second = (rank.stdout for rank in train("epochs=1", "data=fashion").ranks)
    assert first.count("No fashion here (") == 1 and second == ""
