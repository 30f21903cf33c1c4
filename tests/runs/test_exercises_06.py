"""Exercises of lesson 06: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest
from build_notebooks import Lesson
from exercise_cells import Cells

from ddp_helpers.exercises import amp_problem

LESSON = Lesson("06_half_the_bits")
SCRIPTS = {"06.1": "scripts/06_add_amp.py", "06.2": "scripts/06_order.py", "06.3": "scripts/06_accumulate.py"}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
with_solution = CELLS.with_solutions
pytestmark = pytest.mark.usefixtures("notebook_folder")


# ---- 06.1 -----------------------------------------------------------------------------------------------------------

AMP = """
dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
for images, labels in batches:
    with torch.autocast(device.type, dtype=dtype):
        loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
"""
SCALER = "scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)\n"
NO_AMP = """
for images, labels in batches:
    loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
ADD_AMP = {
    "no autocast": (NO_AMP, "autocast was never used"),
    "the old names": (
        "scaler = torch.cuda.amp.GradScaler()\n"
        + AMP.partition("\n\n")[0]
        .split("enabled=dtype == torch.float16)")[1]
        .replace("torch.autocast(device.type, dtype=dtype)", "torch.cuda.amp.autocast()"),
        "torch.cuda.amp knows CUDA only",
    ),
    "autocast for CUDA everywhere": (
        AMP.replace("torch.autocast(device.type", 'torch.autocast("cuda"'),
        "autocast was asked for cuda",
    ),
    "the model in 16 bits": (
        "model = DistributedDataParallel(model.module.bfloat16())\n" + AMP,
        "the model's weights were bfloat16 at the end",
    ),
    "bf16 on CUDA too": (
        AMP.replace("torch.float16 if", "torch.bfloat16 if"),
        "Where CUDA is there, the model computed in bfloat16; asked for is float16",
    ),
    "fp16 on CPU too": (
        AMP.replace("else torch.bfloat16", "else torch.float16"),
        "On CPU, the model computed in float16; asked",
    ),
    "no scaler": (
        AMP.replace("enabled=dtype == torch.float16", "enabled=False"),
        "without a scaler that is switched on",
    ),
    "a scaler that scales nothing": (
        AMP.replace("scaler.scale(loss).backward()", "loss.backward()").replace(
            "scaler.step(optimizer)\n    scaler.update()", "optimizer.step()"
        ),
        "the loss was never scaled",
    ),
    "the optimizer steps itself": (
        AMP.replace("scaler.step(optimizer)\n    scaler.update()", "optimizer.step()"),
        "gradients that nobody divided or looked at",
    ),
    "autocast for the CPU everywhere": (
        AMP.replace("torch.autocast(device.type", 'torch.autocast("cpu"'),
        "autocast was asked for cpu, float16. Where are the tensors?",
    ),
    "autocast around the loss only": (
        AMP.replace("    with torch.autocast", "    outputs = model(images)\n    with torch.autocast").replace(
            "cross_entropy(model(images), labels)", "cross_entropy(outputs, labels)"
        ),
        "Is the model called inside it?",
    ),
    "a scaler for bf16": (
        AMP.replace("enabled=dtype == torch.float16", "enabled=True"),
        "What would it save bf16 from?",
    ),
    "a new scaler in each step": (
        AMP.replace("    optimizer.zero_grad()\n", "    optimizer.zero_grad()\n    " + SCALER).replace(SCALER, "", 1),
        "What does one remember from one step to the next?",
    ),
    "no update": (AMP.replace("    scaler.update()\n", ""), "Who tells the scaler that the step is over"),
    "not through DDP": (AMP.replace("model(images)", "model.module(images)"), "end with different weights"),
    "gradients pile up": (AMP.replace("    optimizer.zero_grad()\n", ""), "gradients set to zero before each"),
    "the scaled loss is reported": (
        AMP.replace("losses.append(loss.item())", "losses.append(scaler.scale(loss).item())"),
        "Is it this rank's own loss, and not scaled?",
    ),
    "one loss in all": (
        AMP.replace("    losses.append(loss.item())", "losses.append(loss.item())"),
        "Asked for is one number a batch",
    ),
}

# ---- 06.2 -----------------------------------------------------------------------------------------------------------

ORDER = """
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
clip_grad_norm_(model.parameters(), max_norm)
scaler.step(optimizer)
before = scaler.get_scale()
scaler.update()
if scaler.get_scale() >= before:
    scheduler.step()
"""
MULTIPLIED = "What were the gradients multiplied by at that moment?"
CLIP, UNSCALE = "clip_grad_norm_(model.parameters(), max_norm)\n", "scaler.unscale_(optimizer)\n"
STEP, UPDATE = "scaler.step(optimizer)\n", "before = scaler.get_scale()\nscaler.update()\n"
MEND = {
    "clip first": (
        ORDER.replace(UNSCALE + CLIP, CLIP + UNSCALE),
        MULTIPLIED,
    ),
    "clip without unscale": (ORDER.replace(UNSCALE, ""), MULTIPLIED),
    "clip last": (ORDER.replace(CLIP, "").replace(STEP, STEP + CLIP), "Between which two does clipping belong?"),
    "no clip": (ORDER.replace(CLIP, ""), "Between which two does clipping belong?"),
    "update before step": (ORDER.replace(STEP, "").replace(UPDATE, UPDATE + STEP), "update came before step"),
    "no update": (ORDER.replace("scaler.update()\n", ""), "Who tells the scaler that the step is over"),
    "unscale after step": (ORDER.replace(UNSCALE, "").replace(STEP, STEP + UNSCALE), "step has divided the gradients"),
    "the scheduler always": (
        ORDER.replace("if scaler.get_scale() >= before:\n    scheduler.step()", "scheduler.step()"),
        "How does the scaler show that?",
    ),
    "the scheduler not when the scale grows": (
        ORDER.replace(">= before", "== before"),
        "which change of the scale means skipped?",
    ),
    "nothing scaled": (ORDER.replace("scaler.scale(loss)", "loss"), "nothing was multiplied by the scale"),
    "the optimizer steps itself": (
        ORDER.replace("scaler.step(optimizer)", "optimizer.step()"),
        "Who looks for infinities",
    ),
}

# ---- 06.3 -----------------------------------------------------------------------------------------------------------

SUM = """
for number, (x, y) in enumerate(micro_batches, 1):
    last = number == len(micro_batches)
    with contextlib.nullcontext() if last else model.no_sync():
        with torch.autocast("cpu", dtype=dtype):
            loss = cross_entropy(model(x), y) / len(micro_batches)
        scaler.scale(loss).backward()
scaler.unscale_(optimizer)
clip_grad_norm_(model.parameters(), max_norm)
scaler.step(optimizer)
scaler.update()
"""
END = SUM[SUM.index("scaler.unscale_") :]
ACCUMULATE = {
    "a sum in place of a mean": (SUM.replace(" / len(micro_batches)", ""), "What makes a mean of their sum?"),
    "three written into it": (
        SUM.replace(" / len(micro_batches)", " / 3"),
        "4 micro-batches were added and divided by 3. How many are in the list?",
    ),
    "the third is the last": (
        SUM.replace("number == len(micro_batches)", "number == 3"),
        "the gradients were sent after micro-batch 3 of 4. Who hears of those that follow?",
    ),
    "unscale in the loop": (
        SUM.replace("scaler.unscale_(optimizer)\n", "").replace(
            "        scaler.scale(loss).backward()\n",
            "        scaler.scale(loss).backward()\n        scaler.unscale_(optimizer)\n",
        ),
        "When is it complete, so that it can be divided?",
    ),
    "everything in the loop": (SUM.replace(END, indent(END, "    ")), "What comes once, after the last?"),
    "always sent": (
        SUM.replace("if last else model.no_sync()", "if True else None"),
        "Which micro-batches need not send?",
    ),
    "never sent": (
        SUM.replace("contextlib.nullcontext() if last else ", ""),
        "Which of the backwards must average?",
    ),
    "no_sync around backward only": (
        """
        for number, (x, y) in enumerate(micro_batches, 1):
            with torch.autocast("cpu", dtype=dtype):
                loss = cross_entropy(model(x), y) / len(micro_batches)
            with contextlib.nullcontext() if number == len(micro_batches) else model.no_sync():
                scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
        """,
        "It is the forward that decides",
    ),
    "one backward for the sum of the losses": (
        SUM.replace("for number", "total = 0\nfor number")
        .replace("            loss = cross_entropy", "            total = total + cross_entropy")
        .replace("        scaler.scale(loss).backward()\n", "")
        .replace(END, "scaler.scale(total).backward()\n" + END),
        "3 micro-batches were in memory at once. What frees those of one",
    ),
    "no autocast": (SUM.replace("dtype=dtype", "enabled=False"), "What goes around the forward pass?"),
    "bf16 written into it": (SUM.replace("dtype=dtype", "dtype=torch.bfloat16"), "What does dtype say?"),
    "clip first": (
        SUM.replace(END, END.replace(UNSCALE + CLIP, CLIP + UNSCALE)),
        MULTIPLIED,
    ),
    "no clip": (SUM.replace(CLIP, ""), "as if nothing had been clipped"),
    "nothing scaled": (SUM.replace("scaler.scale(loss)", "loss"), "nothing was multiplied by the scale"),
    "no update": (SUM.replace("scaler.update()\n", ""), "Who tells the scaler that the step is over"),
    "one micro-batch only": (
        SUM.replace("enumerate(micro_batches, 1)", "enumerate(micro_batches[-1:], len(micro_batches))"),
        "the model was called 1 times",
    ),
    "the optimizer steps itself": (
        SUM.replace("scaler.step(optimizer)", "optimizer.step()"),
        "Who looks for infinities",
    ),
}

WRONG = {
    f"{exercise} {name}": (exercise, *answer)
    for exercise, answers in {"06.1": ADD_AMP, "06.2": MEND, "06.3": ACCUMULATE}.items()
    for name, answer in answers.items()
}
HINTS = {hint for _, hint in [*ADD_AMP.values(), *MEND.values(), *ACCUMULATE.values()]}


@pytest.mark.parametrize(("exercise", "solution", "hint"), WRONG.values(), ids=WRONG)
def test_a_typical_mistake_gets_its_own_hint(exercise: str, solution: str, hint: str) -> None:
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.kind == "wrong"
    assert hint in verdict.text
    assert not [other for other in HINTS - {hint} if other in verdict.text]


OTHER_STYLES = {
    "06.1 two loops, names imported": (
        "06.1",
        """
        from torch.amp import GradScaler, autocast
        scaler = GradScaler() if torch.cuda.is_available() else None
        for x, y in batches:
            optimizer.zero_grad(set_to_none=True)
            if scaler is None:
                with autocast("cpu"):
                    loss = cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
            else:
                with autocast("cuda"):
                    loss = cross_entropy(model(x.to(device)), y.to(device))
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
            losses += [float(loss)]
        """,
    ),
    "06.1 a scaler that is made in the loop, once": (
        "06.1",
        AMP.replace(SCALER, "scaler = None\n").replace(
            "    with torch", f"    scaler = scaler or {SCALER[9:]}    with torch"
        ),
    ),
    "06.2 looks at the norm": (
        "06.2",
        """
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_norm)
        scaler.step(optimizer)
        scaler.update()
        if norm.isfinite():
            scheduler.step()
        """,
    ),
    "06.2 clips scaled gradients to a scaled norm": (
        "06.2",
        """
        old = scaler.get_scale()
        (loss * scaler.scale(torch.ones(()))).backward()
        clip_grad_norm_(model.parameters(), max_norm * old)
        scaler.step(optimizer)
        scaler.update()
        if not scaler.get_scale() < old:
            scheduler.step()
        """,
    ),
    "06.3 the last one apart": (
        "06.3",
        """
        def backward(x, y):
            with torch.autocast("cpu", dtype):
                loss = cross_entropy(model(x), y)
            (scaler.scale(loss) / len(micro_batches)).backward()

        *others, last = micro_batches
        with model.no_sync():
            for x, y in others:
                backward(x, y)
        backward(*last)
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.module.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
        """,
    ),
}


@pytest.mark.parametrize(("exercise", "solution"), OTHER_STYLES.values(), ids=OTHER_STYLES)
def test_right_answers_in_another_style_pass(exercise: str, solution: str) -> None:
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.passed, verdict


# ---- the truth they are compared with -------------------------------------------------------------------------------


def test_the_gradient_by_hand_agrees_with_finite_differences() -> None:
    weight, (x, y) = amp_problem.start(1).astype(np.float64), amp_problem.batch(1, 0, 0)
    _, gradient = amp_problem.loss_and_gradient(weight, x, y)
    for index in np.ndindex(*weight.shape):
        nudge = np.zeros_like(weight)
        nudge[index] = 1e-5
        up, _ = amp_problem.loss_and_gradient(weight + nudge, x, y)
        down, _ = amp_problem.loss_and_gradient(weight - nudge, x, y)
        assert gradient[index] == pytest.approx((up - down) / 2e-5, abs=1e-7)


def test_harness_and_check_speak_of_the_same_steps() -> None:
    from ddp_helpers.exercises import amp_harness, lesson06

    for name in ("STEPS", "BAD_STEP", "LR"):
        assert getattr(amp_harness, name) == getattr(lesson06, name)
    assert list(amp_harness.MAX_NORMS) == lesson06.MAX_NORMS
