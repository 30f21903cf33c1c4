"""Exercises of lesson 06: AMP added to DDP, the order of the loop, accumulation with the scaler.

A learner's function is called at several world sizes with data of ours (amp_harness.py), and what it leaves is compared
with one process in 64 bits (amp_problem.py). Tolerances follow from the format's `eps`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..result import Run
from . import amp_problem
from .amp_problem import SCALE, Array, Taken
from .attempt import Attempt, ScriptExercise, Wrong, crowd
from .note import left_by

HARNESS = "amp_harness.py"
STEPS, BAD_STEP = 4, 1  # as in the harness, which is a script and not imported
MAX_NORMS = [1e9, 1e9, 0.05, 1e9]
LR = 0.5
EPS = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
LOOK = "Who looks for infinities before the optimizer steps?"
ROOM = 4  # a step's gradient is a sum of products of rounded factors: we allow four times eps, relative to its norm

Seen = dict[str, Any]


def watched(attempt: Attempt, mode: str, nproc: int) -> tuple[Run, dict[int, Seen]]:
    """Call the learner's function on every rank; raises Wrong when a rank fails."""
    run = attempt.run_through(HARNESS, mode, str(nproc), nproc=nproc)
    seen = left_by(run, "seen.json")
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        raise Wrong(f"{wrong}{_why_it_failed(wrong.failure, seen.get(0))}", wrong.failure) from None
    return run, seen


def _why_it_failed(failure: str, seen: Seen | None) -> str:
    steps = _steps(seen) if seen else [[]]
    events, another = steps[0], len(steps) > 1 or steps[0].count("step") > 1
    if "step" in events and _first(events, "update") < _first(events, "step"):
        return "\nupdate came before step. It starts a new round: it forgets what was divided, and what was infinite."
    if "unscale_() has already been called" in failure:
        return "\nGradients of several micro-batches are one sum. When is it complete, so that it can be divided?"
    if another and "step" in events and "update" not in events:
        return "\nWho tells the scaler that the step is over, so that it can choose the next scale?"
    if "unscale_() is being called after step()" in failure:
        return "\nstep has divided the gradients already. Where do you need them divided?"
    if "_scale is None" in failure:
        return "\nThe scaler is asked to divide, and nothing was multiplied by the scale. What is scaled, and when?"
    return ""


def _steps(seen: Seen) -> list[list[str]]:
    """The events of each step; without marks, those of all."""
    steps: list[list[str]] = [[]]
    for event in seen["events"]:
        if event == "begin":
            steps.append([])
        else:
            steps[-1].append(event)
    return steps[1:] or steps


def _first(step: list[str], name: str) -> int:
    """Where an event of that name stands in the step; behind all others when it does not."""
    return next((place for place, event in enumerate(step) if event.split()[0] == name), len(step))


def _moved(weights: list[Any], step: int, seed: int) -> Array | None:
    """What one step added to the weights; None when they are no numbers any more."""
    before = amp_problem.start(seed) if step == 0 else weights[step - 1]
    return None if not len(before) or not weights[step] else np.array(weights[step]) - np.array(before)


def _off(moved: Array, truth: Array) -> float:
    return float(np.linalg.norm(moved - truth) / (np.linalg.norm(truth) or 1.0))


def _ratio(moved: Array, truth: Array) -> float:
    """How many times as long as the true one a step is, along it."""
    return float((moved * truth).sum() / (truth * truth).sum())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _apart(run: Run, seen: dict[int, Seen]) -> str | None:
    for rank in seen:
        if seen[rank]["weights"] != seen[0]["weights"]:
            return (
                f"{crowd(run)} ranks 0 and {rank} end with different weights. "
                "Which object averages the gradients, and did every forward and the last backward go through it?"
            )
    return None


# ---- 06.1: AMP for a DDP script -------------------------------------------------------------------------------------


def add_amp(attempt: Attempt) -> str | None:
    """bf16 without scaling on the CPU at 1 to 4 ranks; fp16 with a scaler where CUDA is said to be there."""
    for mode, nproc in (("cpu", 1), ("cpu", 2), ("cpu", 3), ("cpu", 4), ("cuda", 2)):
        run, seen = watched(attempt, mode, nproc)
        hint = _judge_choices(run, mode, seen[0]) or _judge_training(run, mode, nproc, seen)
        if hint:
            return hint
    return None


def _judge_choices(run: Run, mode: str, seen: Seen) -> str | None:
    where, wanted = ("On CPU", "bfloat16") if mode == "cpu" else ("Where CUDA is there", "float16")
    if not seen["dtypes"]:
        return f"{crowd(run)} train never called the model."
    if seen["kept"] != "float32":
        return (
            f"{where}, the model's weights were {seen['kept']} at the end. "
            "They stay in float32: small updates are lost in 16 bits (06.1). Who converts for each operation?"
        )
    given = seen["dtypes"][-1]
    if given == wanted:
        return None
    if seen["old"]:
        return f"{where}, the model computed in {given}. torch.cuda.amp knows CUDA only. What is the new name?"
    if given == "float32" and not seen["autocasts"]:
        return f"{where}, the model computed in float32: autocast was never used. What does it go around?"
    if given == "float32":
        device, dtype, on = seen["autocasts"][0]
        if on and device == mode:
            return f"{where}, the model computed in float32, although autocast was used. Is the model called inside it?"
        asked = f"{device}, {dtype}{'' if on else ', switched off'}"
        return f"{where}, the model computed in float32. autocast was asked for {asked}. Where are the tensors?"
    return f"{where}, the model computed in {given}; asked for is {wanted}. What does device.type say?"


def _judge_training(run: Run, mode: str, nproc: int, seen: dict[int, Seen]) -> str | None:
    skip = BAD_STEP if mode == "cuda" else -1
    batches = [amp_problem.joined(nproc, nproc, step) for step in range(STEPS)]
    truth = amp_problem.train(nproc, batches, 0.1, [1e9] * STEPS, skip)
    return (
        _judge_scaling(mode, seen[0])
        or _judge_weights(run, mode, nproc, seen, truth[-1].weight)
        or _judge_losses(run, mode, nproc, seen, truth, skip)
    )


def _judge_scaling(mode: str, seen: Seen) -> str | None:
    switched_on = sum(on for _, on in seen["scalers"])
    if mode == "cpu":
        found = "On CPU, bf16 is used, with a scaler that is switched on. What would it save bf16 from?"
        return found if switched_on else None
    where = "Where CUDA is there, fp16 is used"
    if not switched_on:
        return f"{where} without a scaler that is switched on. What becomes of a gradient of 1e-8?"
    if switched_on > 1:
        return f"{where}, and {switched_on} scalers were made. What does one remember from one step to the next?"
    if "scale" not in seen["events"]:
        return f"{where}, but the loss was never scaled. What is the scaler there for?"
    if "step" not in seen["events"]:
        return (
            f"{where}, the loss is multiplied by {_number(SCALE)}, and the optimizer steps with gradients that nobody "
            "divided or looked at. Who should call the optimizer's step?"
        )
    return None


def _judge_weights(run: Run, mode: str, nproc: int, seen: dict[int, Seen], truth: Array) -> str | None:
    hint = _apart(run, seen)
    if hint:
        return hint
    if not seen[0]["weights"][0]:
        return f"{crowd(run)} the weights are no numbers at the end. {LOOK}"
    start = amp_problem.start(nproc)
    moved, true = np.array(seen[0]["weights"][0]) - start, truth - start
    eps = EPS["bfloat16" if mode == "cpu" else "float16"]
    if _off(moved, true) <= ROOM * eps:
        return None
    return (
        f"{crowd(run)} the weights moved {_number(_ratio(moved, true))} times as far as in one process with all "
        f"samples (off by {_off(moved, true):.1%}; {ROOM * eps:.1%} is what the format explains). "
        "One step a batch, gradients set to zero before each, the learning rate left alone?"
    )


def _judge_losses(run: Run, mode: str, nproc: int, seen: dict[int, Seen], truth: list[Taken], skip: int) -> str | None:
    eps = EPS["bfloat16" if mode == "cpu" else "float16"]
    for rank in seen:
        losses = seen[rank]["losses"]
        if isinstance(losses, str) or len(losses) != STEPS:
            found = losses if isinstance(losses, str) else f"{len(losses)} losses"
            return f"{crowd(run)} train returned {found} on rank {rank}. Asked for is one number a batch, {STEPS} here."
        for step in range(STEPS):
            before = truth[step - 1].weight if step else amp_problem.start(nproc)
            true, _ = amp_problem.loss_and_gradient(before, *amp_problem.batch(nproc, rank, step))
            if step != skip and not abs(losses[step] - true) <= ROOM * eps * true:
                return (
                    f"{crowd(run)} rank {rank} returned {losses[step]:.4g} as its loss of batch {step}; "
                    f"it is {true:.4g}. Is it this rank's own loss, and not scaled?"
                )
    return None


# ---- 06.2: the order ------------------------------------------------------------------------------------------------


def order(attempt: Attempt) -> str | None:
    """Clipped, skipped and scheduled as in one process, whatever the scale does."""
    for nproc in (1, 2, 3, 4):
        run, seen = watched(attempt, "order", nproc)
        hint = _judge_order(run, nproc, seen)
        if hint:
            return hint
    return None


def _judge_order(run: Run, nproc: int, seen: dict[int, Seen]) -> str | None:
    weight, lr = amp_problem.start(nproc).astype(np.float64), LR
    for step in range(STEPS):
        x, y = amp_problem.joined(nproc, nproc, step)
        _, gradient = amp_problem.loss_and_gradient(weight, x, y)
        true = -lr * amp_problem.clipped(gradient, MAX_NORMS[step]) * (step != BAD_STEP)
        for rank in seen:
            moved = _moved(seen[rank]["weights"], step, nproc)
            if moved is None:
                return f"{crowd(run)} rank {rank}, step {step}: the weights are no numbers any more. {LOOK}"
            if _off(moved, true) > 1000 * EPS["float32"]:
                events, unclipped = _steps(seen[rank])[step], -lr * gradient
                return f"{crowd(run)} rank {rank}, step {step}: {_hint_for_step(step, events, moved, true, unclipped)}"
        weight, lr = weight + true, lr * (1.0 if step == BAD_STEP else 0.5)
        got = seen[0]["lrs"][step]
        if abs(got - lr) > 1e-9:
            start = f"{crowd(run)} the learning rate is {got:g} after step {step}; it should be {lr:g}."
            return f"{start} {_hint_for_lr(step)}"
    return None


def _hint_for_step(step: int, events: list[str], moved: Array, true: Array, unclipped: Array) -> str:
    if step == BAD_STEP:
        return f"the gradients are infinite, and the weights moved. {LOOK}"
    length, right = (f"{float(np.linalg.norm(value)):.3g}" for value in (moved, true))
    found = f"the weights moved by {length}, and {right} is right."
    if not moved.any() and "step" not in events:
        return f"{found} The scaler's step was not called."
    if "scale" not in events:
        return f"{found} The loss was never scaled: which of the six comes first?"
    clip = _first(events, "clip")
    if clip < min(_first(events, "unscale_"), _first(events, "step")) and _off(moved, true) > 0.9:
        norm = float(events[clip].split()[1])
        return f"{found} Clip saw the norm {_number(norm)}. What were the gradients multiplied by at that moment?"
    if _off(moved, unclipped) < 1000 * EPS["float32"]:
        return f"{found} That is the step without clipping. Between which two does clipping belong?"
    if "optimizer" in events and "step" not in events:
        return f"{found} The optimizer was called itself, and not through the scaler."
    return f"{found} Compare with the six: scale, backward, unscale_, clip, step, update."


def _hint_for_lr(step: int) -> str:
    if step == BAD_STEP:
        return "The optimizer skipped this step. How does the scaler show that?"
    return "The optimizer did step. The scale may grow after a good step: which change of the scale means skipped?"


# ---- 06.3: accumulation ---------------------------------------------------------------------------------------------


def accumulate(attempt: Attempt) -> str | None:
    """As one process with all samples in one batch; one message a step; a bad micro-batch costs all ranks the step."""
    for dtype, nproc in (("float16", 1), ("bfloat16", 2), ("float16", 2), ("bfloat16", 3), ("float16", 4)):
        run, seen = watched(attempt, dtype, nproc)
        hint = _judge_calls(run, dtype, nproc, seen[0]) or _judge_steps(run, dtype, nproc, seen) or _apart(run, seen)
        hint = hint or _judge_memory(run, seen[0])
        if hint:
            return hint
    return None


def _judge_calls(run: Run, dtype: str, seed: int, seen: Seen) -> str | None:
    start = f"{crowd(run)} dtype {dtype}:"
    events, given = _steps(seen)[0], amp_problem.micro_batches(seed)
    calls = events.count("forward")
    if calls != given:
        return f"{start} the model was called {calls} times for {given} micro-batches."
    if seen["dtypes"][0] != dtype:
        right = "What goes around the forward pass?" if seen["dtypes"][0] == "float32" else "What does dtype say?"
        return f"{start} the model computed in {seen['dtypes'][0]}. {right}"
    if dtype == "float16" and "scale" not in events:
        return f"{start} the loss was never scaled. What does the scaler do before backward?"
    stepped = events.count("optimizer")
    if stepped > 1:
        return f"{start} the optimizer stepped {stepped} times for one call. What comes once, after the last?"
    return None if len(run.ranks) == 1 else _judge_messages(start, events)


def _judge_messages(start: str, events: list[str]) -> str | None:
    sent, calls = events.count("all_reduce"), events.count("forward")
    if sent == 1:
        before = events[: events.index("all_reduce")].count("forward")
        late = f"{start} the gradients were sent after micro-batch {before} of {calls}. Who hears of those that follow?"
        return late if before < calls else None
    if not sent:
        return f"{start} nothing was sent: every rank trained alone. Which of the backwards must average?"
    if "no_sync" in events:
        return (
            f"{start} the gradients were sent {sent} times for one step, although no_sync was used. "
            "It is the forward that decides: what must be inside, and for which micro-batches?"
        )
    return f"{start} the gradients were sent {sent} times for one step. Which micro-batches need not send?"


def _judge_steps(run: Run, dtype: str, nproc: int, seen: dict[int, Seen]) -> str | None:
    samples = amp_problem.micro_batches(nproc) * amp_problem.MICRO_SAMPLES
    batches = [amp_problem.joined(nproc, nproc, step, samples) for step in range(STEPS)]
    skip = BAD_STEP if dtype == "float16" else -1
    truth = amp_problem.train(nproc, batches, LR, MAX_NORMS, skip)
    before = amp_problem.start(nproc).astype(np.float64)
    for step, taken in enumerate(truth):
        true = taken.weight - before
        for rank in seen:
            start = f"{crowd(run)} dtype {dtype}, rank {rank}, step {step}:"
            moved = _moved(seen[rank]["weights"], step, nproc)
            if moved is None:
                return f"{start} the weights are no numbers any more. {LOOK}"
            if _off(moved, true) > ROOM * EPS[dtype]:
                unclipped = -LR * amp_problem.loss_and_gradient(before, *batches[step])[1]
                return f"{start} {_hint_for_sum(step == skip, _steps(seen[rank])[step], moved, true, unclipped)}"
        before = taken.weight
    return None


def _hint_for_sum(skipped: bool, events: list[str], moved: Array, true: Array, unclipped: Array) -> str:
    if skipped:
        return f"one micro-batch was infinite, and the weights moved. {LOOK}"
    ratio = _ratio(moved, true)
    found = f"the weights moved {_number(ratio)} times as far as in one process with all samples."
    if not moved.any():
        return f"{found} Nothing has called the optimizer, or every gradient was 0."
    count = events.count("forward")
    divisor = round(count / ratio) if ratio > 0 else 0
    if 0 < divisor < 2 * count and _off(moved * divisor / count, true) < 0.05 and _off(true, unclipped) < 0.05:
        if divisor > 1:
            return f"{found} {count} micro-batches were added and divided by {divisor}. How many are in the list?"
        return f"{found} {count} micro-batches were added. What makes a mean of their sum?"
    clip = _first(events, "clip")
    if "scale" in events and clip < min(_first(events, "unscale_"), _first(events, "step")):
        norm = float(events[clip].split()[1])
        return f"{found} Clip saw the norm {_number(norm)}. What were the gradients multiplied by at that moment?"
    if _off(moved, unclipped) < 0.05 and _off(true, unclipped) > 0.05:
        return f"{found} That is as if nothing had been clipped: where does it belong?"
    if sum(event.startswith("clip") for event in events) > 1:
        return f"{found} Clipped was several times. What comes once, after the last micro-batch?"
    if "step" not in events:
        return f"{found} The optimizer was called, but not through the scaler."
    return f"{found} Compare the order with that of 06.6, and look at which samples each backward has seen."


def _judge_memory(run: Run, seen: Seen) -> str | None:
    waiting = most = 0
    for event in _steps(seen)[0]:
        waiting += (event == "forward") - (event == "backward")
        most = max(most, waiting)
    if most < 2:
        return None
    return (
        f"{crowd(run)} the weights are right, and the activations of {most} micro-batches were in memory at once. "
        "What frees those of one, before the next comes?"
    )


CHECKS = {
    "06.1": ScriptExercise(
        "scripts/06_add_amp.py",
        add_amp,
        "with 1, 2, 3 and 4 processes on CPU, and with 2 as if there were CUDA (on no real GPU)",
    ),
    "06.2": ScriptExercise("scripts/06_order.py", order, "with 1, 2, 3 and 4 processes, one step overflowing"),
    "06.3": ScriptExercise(
        "scripts/06_accumulate.py",
        accumulate,
        "in fp16 and bf16, with 1 to 4 processes, a micro-batch overflowing",
    ),
}
