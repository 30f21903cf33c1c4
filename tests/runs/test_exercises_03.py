"""Exercises of lesson 03: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent, indent

import pytest
from build_notebooks import Lesson, read_source
from exercise_cells import Cells

LESSON = Lesson("03_ddp_from_nothing")
SCRIPTS = {
    "03.1": "scripts/03_share.py",
    "03.2": "scripts/03_one_vote.py",
    "03.3": "scripts/03_checkpoint.py",
    "03.4": "scripts/03_jumps.py",
    "03.5": "scripts/03_accuracy.py",
}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
with_solution = CELLS.with_solutions
changed = CELLS.edited
pytestmark = pytest.mark.usefixtures("notebook_folder")


OTHER_STYLES = {
    "03.1 a hook before accumulation, and rank 0's state sent as an object": (
        "03.1",
        with_solution(
            "03.1",
            """
            state = [model.state_dict()]
            dist.broadcast_object_list(state, src=0)
            model.load_state_dict(state[0])

            def averaged(gradient):
                gradient = gradient / dist.get_world_size()
                dist.all_reduce(gradient)
                return gradient

            for parameter in filter(lambda p: p.requires_grad, model.parameters()):
                parameter.register_hook(averaged)
            """,
        ),
    ),
    "03.1 all at once, at the end of backward": (
        "03.1",
        with_solution(
            "03.1",
            """
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter *= dist.get_rank() == 0
                    dist.all_reduce(parameter)
            trained = [p for p in model.parameters() if p.requires_grad]
            waiting = []

            def ready(parameter):
                waiting.append(parameter)
                if len(waiting) == len(trained):
                    row = torch.cat([p.grad.flatten() for p in trained])
                    dist.all_reduce(row, op=dist.ReduceOp.AVG)
                    for p, part in zip(trained, row.split([p.numel() for p in trained])):
                        p.grad.copy_(part.view_as(p))
                    waiting.clear()

            for parameter in trained:
                parameter.register_post_accumulate_grad_hook(ready)
            """,
        ),
    ),
    "03.2 the mean, weighed": (
        "03.2",
        with_solution(
            "03.2",
            """
            counts = [None] * dist.get_world_size()
            dist.all_gather_object(counts, losses.numel())
            loss = losses.mean() * losses.numel() / (sum(counts) / len(counts))
            """,
        ),
    ),
    "03.2 weights, one a sample": (
        "03.2",
        with_solution(
            "03.2",
            """
            n = torch.tensor(len(losses))
            dist.all_reduce(n)
            loss = (losses * torch.full_like(losses, dist.get_world_size() / n.item())).sum()
            """,
        ),
    ),
    "03.3 averaged by hand": (
        "03.3",
        changed(
            "03.3",
            ("model = DistributedDataParallel(model)", "pass"),
            (
                "    loss.backward()\n",
                "    loss.backward()\n    for p in model.parameters():\n"
                "        dist.all_reduce(p.grad)\n        p.grad /= world\n",
            ),
        ),
    ),
    "03.3 under another name": (
        "03.3",
        changed(
            "03.3",
            ("model = DistributedDataParallel(model)", "ddp = DistributedDataParallel(model)"),
            ("model(images[batch])", "ddp(images[batch])"),
        ),
    ),
    "03.3 the digits loaded in a with statement, and the loss of all of them looked at": (
        "03.3",
        changed(
            "03.3",
            (
                'data = np.load("../data/digits.npz")\n',
                'with np.load("../data/digits.npz") as npz:\n    data = {k: npz[k] for k in npz.files}\n',
            ),
            (
                "    optimizer.step()\n",
                "    optimizer.step()\n    total = cross_entropy(model(images), labels).item()\n",
            ),
        ),
    ),
    "03.3 the checkpoint is loaded again by the rank that saved it": (
        "03.3",
        changed(
            "03.3",
            ('    print("saved")\n', '    plain.load_state_dict(torch.load("runs/03_checkpoint.pt"))\n'),
            ('    plain = getattr(model, "module", model)', "    plain = model.module"),
        ),
    ),
    "03.3 wrapped for each backend, with a GPU where there is NCCL": (
        "03.3",
        changed(
            "03.3",
            (
                "model = DistributedDataParallel(model)",
                'if dist.get_backend() == "nccl":\n    model = DistributedDataParallel(model.to("cuda:99"))\n'
                "else:\n    model = DistributedDataParallel(model)",
            ),
        ),
    ),
    "03.4 DDP's own averaging turned off, and the exchange by hand kept": (
        "03.4",
        changed(
            "03.4",
            ("    loss = cross_entropy(model(images[batch]), labels[batch])\n", ""),
            (
                "    loss.backward()",
                "    with model.no_sync():\n        loss = cross_entropy(model(images[batch]), labels[batch])\n"
                "        loss.backward()\n    for p in model.parameters():\n        dist.all_reduce(p.grad)\n"
                "        p.grad /= world",
            ),
        ),
    ),
    "03.4 the loss of all ranks printed": (
        "03.4",
        changed(
            "03.4", ("    optimizer.step()\n", "    optimizer.step()\n    dist.all_reduce(loss.detach().clone())\n")
        ),
    ),
    "03.4 by hand, with no wrapper": (
        "03.4",
        changed(
            "03.4",
            ("model = DistributedDataParallel(model)", "pass"),
            (
                "    optimizer.step()\n",
                "    for p in model.parameters():\n        dist.all_reduce(p.grad / world)\n"
                "        dist.all_reduce(p.grad)\n        p.grad.div_(world)\n    optimizer.step()\n",
            ),
        ),
    ),
    "03.5 counts on both sides": (
        "03.5",
        changed(
            "03.5",
            (
                "dist.all_reduce(correct)",
                "both = torch.stack([correct, torch.tensor(len(mine))])\ndist.reduce(both, 0)",
            ),
            ("accuracy = correct / len(held_out)", "accuracy = (both[0] / both[1]).item()"),
        ),
    ),
    "03.5 shares in one piece each": (
        "03.5",
        changed("03.5", ("mine = held_out[rank::world]", "mine = held_out.tensor_split(world)[rank]")),
    ),
}


@pytest.mark.parametrize(("exercise", "text"), OTHER_STYLES.values(), ids=OTHER_STYLES)
def test_a_right_answer_in_another_style_passes(exercise: str, text: str) -> None:
    verdict = checked(exercise, text)
    assert verdict.passed, verdict


BROADCAST = "for p in model.parameters():\n    dist.broadcast(p.data, src=0)\n"
HOOKS = "for p in model.parameters():\n    if p.requires_grad:\n        p.register_post_accumulate_grad_hook(average)\n"


def hook(body: str) -> str:
    return f"def average(parameter):\n{indent(dedent(body), '    ')}\n"


AVERAGE = hook("dist.all_reduce(parameter.grad)\nparameter.grad /= dist.get_world_size()")
# What is wrong, the answer, and words that only this mistake's hint has.
SHARE = {
    "no broadcast": (AVERAGE + HOOKS, "never brings weights together that began apart"),
    "only trained parameters are broadcast": (
        AVERAGE + HOOKS + BROADCAST.replace("dist", "if p.requires_grad:\n        dist"),
        "is frozen: it is never trained",
    ),
    "the last rank's weights": (
        AVERAGE + HOOKS + BROADCAST.replace("src=0", "src=dist.get_world_size() - 1"),
        "not what rank 0 began with",
    ),
    "no exchange of gradients": (BROADCAST, "nothing came from the other ranks"),
    "a sum": (
        BROADCAST + hook("dist.all_reduce(parameter.grad)") + HOOKS,
        "the sum over the ranks. DDP's is the average",
    ),
    "divided twice": (
        BROADCAST + AVERAGE.replace("SUM", "AVG").replace("grad)", "grad, op=dist.ReduceOp.AVG)") + HOOKS,
        "divided by the number of ranks once too often",
    ),
    "divided, not added": (
        BROADCAST + hook("parameter.grad /= dist.get_world_size()") + HOOKS,
        "nothing was added to it",
    ),
    "a hook on frozen parameters": (
        BROADCAST + AVERAGE + "for p in model.parameters():\n    p.register_post_accumulate_grad_hook(average)\n",
        "gets no gradient, so there is none to average",
    ),
    "gradients before there are any": (
        BROADCAST + "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= 2\n",
        "When share() is called nothing has been computed yet",
    ),
    "new parameters": (
        "for module in model.modules():\n    for name, p in list(module.named_parameters(recurse=False)):\n"
        "        dist.broadcast(p.data, src=0)\n"
        "        setattr(module, name, torch.nn.Parameter(p.detach().clone(), p.requires_grad))\n" + AVERAGE + HOOKS,
        "two layers shared one weight, and after share() they have two",
    ),
    "only the first backward": (
        BROADCAST
        + "handles = []\n"
        + hook(
            "dist.all_reduce(parameter.grad)\nparameter.grad /= dist.get_world_size()\nhandles[0].remove()\n"
            "del handles[0]"
        )
        + "for p in reversed([p for p in model.parameters() if p.requires_grad]):\n"
        "    handles.append(p.register_post_accumulate_grad_hook(average))\n",
        "Does every backward() exchange, or only the first?",
    ),
    "a wrapper nobody calls": (
        "return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\n",
        "share() returns another module",
    ),
    "DDP itself, in a wrapper that nobody calls": (
        "return torch.nn.parallel.DistributedDataParallel(model)\n",
        "share() returns another module",
    ),
}
LOSSES = {
    "the mean": ("loss = losses.mean()\n", "Each rank's mean counts as much as any other's"),
    "the world size forgotten": (
        "n = torch.tensor(float(len(losses)))\ndist.all_reduce(n)\nloss = losses.sum() / n\n",
        "Who else divides, after you?",
    ),
    "the sum": ("loss = losses.sum()\n", "DDP has averaged the sums"),
    "the mean, times world size": ("loss = losses.mean() * dist.get_world_size()\n", "still each rank has one"),
    "a sum for a mean": ("loss = losses.sum() * dist.get_world_size()\n", "That is the sum over all samples"),
    "a number that forgot": (
        "n = torch.tensor(float(len(losses)))\ndist.all_reduce(n)\n"
        "loss = torch.tensor(losses.sum().item()) * dist.get_world_size() / n\n",
        "still know how it was computed",
    ),
    "one a sample": (
        "n = torch.tensor(float(len(losses)))\ndist.all_reduce(n)\nloss = losses * dist.get_world_size() / n\n",
        "backward() wants one number",
    ),
    "nothing": ("return\n", "to_backward() returns nothing"),
    "written for two ranks and eight samples": ("loss = losses.sum() * 2 / 8\n", "is not the only split"),
    "written for eight samples": ("loss = losses.sum() * dist.get_world_size() / 8\n", "is not the only split"),
    "written for two ranks": (
        "n = torch.tensor(float(len(losses)))\ndist.all_reduce(n)\nloss = losses.sum() * 2 / n\n",
        "There are not always two ranks",
    ),
    "squared": ("loss = (losses.sum() * 3) ** 2\n", "none of the usual mistakes"),
}
WRAP = "model = DistributedDataParallel(model)"
CHECKPOINT = {
    "as it was": (((WRAP, "pass"),), "Nothing ever carried a gradient"),
    "wrapped, not called": (((WRAP, "ddp = DistributedDataParallel(model)"),), "no forward went through it"),
    "averaged at the end": (
        (
            (WRAP, "pass"),
            (
                'print(f"loss=',
                'for p in model.parameters():\n    dist.all_reduce(p.data)\n    p.data /= world\nprint(f"loss=',
            ),
        ),
        "in every step, not at the end only",
    ),
    "everybody does all of it": (((WRAP, "pass"), ("[rank::world]", "")), "The ranks share the work"),
    "another model on each rank": (((WRAP, "pass"), ("seed(0)", "seed(rank)")), "Nothing ever carried a gradient"),
    "a layer outside": (
        ((WRAP, "ddp = DistributedDataParallel(model[:2])"), ("model(images[batch])", "model[2](ddp(images[batch]))")),
        "What is different on rank",
    ),
    "wrapped on gloo in place of nccl": (
        ((WRAP, 'if dist.get_backend() == "gloo":\n    model = DistributedDataParallel(model)'),),
        "With NCCL this script is not wrapped",
    ),
    "not saved": (
        (("    torch.save(", "    str(("), ('"runs/03_checkpoint.pt")', '"runs/03_checkpoint.pt"))')),
        "nobody saved",
    ),
    "saved with the wrapper's names": (
        (('getattr(model, "module", model)', "model"),),
        "the names in the checkpoint begin with module.",
    ),
    "saved by all": ((("if rank == 0:", "if True:"),), "saved to the same path too"),
    "saved by all, each to its own": (
        (("if rank == 0:", "if True:"), ('"runs/03_checkpoint.pt"', 'f"runs/03_{rank}.pt"')),
        "saved to runs/03_1.pt",
    ),
    "the whole model saved": (
        (("plain.state_dict()", "plain"),),
        "not the names and weights that state_dict() gives",
    ),
    "saved before the training": (
        (
            (WRAP, WRAP + '\nif rank == 0:\n    torch.save(model.module.state_dict(), "runs/03_checkpoint.pt")'),
            ('    torch.save(plain.state_dict(), "runs/03_checkpoint.pt")\n', ""),
        ),
        "When was it saved?",
    ),
}
EXCHANGE = "    for p in model.parameters():\n        {}\n    optimizer.step()\n"
STEP = "    optimizer.step()\n"
JUMPS = {
    "as it was": (((STEP, EXCHANGE.format("dist.all_reduce(p.grad)")),), "What happens to that average"),
    "a smaller learning rate": (
        ((STEP, EXCHANGE.format("dist.all_reduce(p.grad)")), ("lr=1.0", "lr=1.0 / world")),
        "hides that from SGD",
    ),
    "divided once more": ((("    loss.backward()", "    (loss / world).backward()"),), "divided once too often"),
    "sent twice, with the loss divided": (
        (
            ("    loss.backward()", "    (loss / world).backward()"),
            (STEP, EXCHANGE.format("dist.all_reduce(p.grad)")),
        ),
        "they travel twice",
    ),
    "sent twice, with the gradient divided": (
        ((STEP, EXCHANGE.format("dist.all_reduce(p.grad); p.grad /= world")),),
        "they travel twice",
    ),
    "the average of equal averages": (
        ((STEP, EXCHANGE.format("dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)")),),
        "they travel twice",
    ),
    "neither": (((WRAP, "pass"),), "Its own samples alone would not give"),
    "everybody does all of it": (((WRAP, "pass"), ("[rank::world]", "")), "The ranks share the work"),
}
SUM = "dist.all_reduce(correct)"
DIVIDE = "accuracy = correct / len(held_out)"
ACCURACY = {
    "as it was": (((SUM, "pass"),), "right answers, divided by all 97 digits"),
    "its own": (((SUM, "pass"), (DIVIDE, "accuracy = correct / len(mine)")), "accuracy on rank 0's own"),
    "times world size": (((SUM, "correct = correct * world"),), "takes for granted"),
    "one vote a rank": (
        ((SUM, "accuracy = correct / len(mine)\ndist.all_reduce(accuracy)"), (DIVIDE, "accuracy /= world")),
        "gives each rank one vote",
    ),
    "its own denominator": ((("len(held_out)", "len(mine)"),), "All right answers are in it, but only"),
    "divided by the ranks": ((("len(held_out)", "len(held_out) / world"),), "and then it was divided by the number"),
    "under a condition": (
        ((SUM, "if rank == 0:\n    dist.all_reduce(correct)"),),
        "Every rank must make the same calls",
    ),
    "every rank looks at everything": (
        (("held_out[rank::world]", "held_out"), (SUM, "pass")),
        "How does rank 0 learn what the others found?",
    ),
    "in percent": ((("{accuracy:.4f}", "{100 * accuracy:.2f}"),), "in percent"),
    "nothing printed": ((("print(f", "str(f"),), 'printed no "accuracy=…"'),
}
WRONG = {
    **{f"03.1 {name}": ("03.1", with_solution("03.1", text), hint) for name, (text, hint) in SHARE.items()},
    **{f"03.2 {name}": ("03.2", with_solution("03.2", text), hint) for name, (text, hint) in LOSSES.items()},
    **{
        f"{exercise} {name}": (exercise, changed(exercise, *changes), hint)
        for exercise, answers in {"03.3": CHECKPOINT, "03.4": JUMPS, "03.5": ACCURACY}.items()
        for name, (changes, hint) in answers.items()
    },
}


@pytest.mark.parametrize(("exercise", "text", "hint"), WRONG.values(), ids=WRONG)
def test_a_typical_mistake_gets_its_own_hint(exercise: str, text: str, hint: str) -> None:
    verdict = checked(exercise, text)
    assert verdict.kind == "wrong"
    assert hint in verdict.text
    others = [other for _, _, other in WRONG.values() if other != hint]
    assert not [other for other in others if other in verdict.text]


def test_a_script_that_hangs_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_helpers.exercises.attempt.SECONDS", 4)
    verdict = checked("03.1", with_solution("03.1", "if dist.get_rank() == 0:\n    dist.barrier()\n" + BROADCAST))
    assert verdict.kind == "wrong"
    assert "did not end within" in verdict.text and "Every rank must make the same calls" in verdict.text


def test_the_check_leaves_the_learners_own_checkpoint_alone(notebook_folder: Path) -> None:
    mine = notebook_folder / "runs" / "03_checkpoint.pt"
    mine.parent.mkdir()
    mine.write_text("mine", encoding="utf-8")
    assert checked("03.3", CELLS.solved("03.3")).passed
    assert mine.read_text(encoding="utf-8") == "mine"


def test_the_number_shown_is_one_that_is_wrong() -> None:
    verdict = checked("03.1", with_solution("03.1", BROADCAST))
    found, right = re.findall(r"has ([+-]\d\.\d+)", verdict.text)
    assert found != right


def test_the_broken_scripts_do_not_fail_and_are_wrong_in_one_place() -> None:
    """Each differs from its mended one in a few lines only, so that there is a line to be found."""
    cells = {cell.source.split("\n")[0].split()[-1]: cell.source.splitlines()[1:] for cell in read_source(LESSON).cells}
    for exercise in ("03.3", "03.4", "03.5"):
        broken = cells[SCRIPTS[exercise].replace(".py", "_broken.py")]
        mended = [line for line in cells[SCRIPTS[exercise]] if "SOLUTION" not in line]
        assert 1 <= len(set(broken) ^ set(mended)) <= 4
        assert checked(exercise, "\n".join(broken) + "\n").kind == "wrong"
