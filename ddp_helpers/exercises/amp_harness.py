"""Runs inside a rank, around a learner's script, for lesson 06: ``amp_harness.py MODE SCRIPT SEED``.

MODE is "cpu" or "cuda" (exercise 06.1; "cuda" only pretends, see `pretend_cuda`), "order" (06.2), "bfloat16" or
"float16" (06.3). The script is run under another name than ``__main__``, so that it defines its function and trains
nothing; then the function is called with data of ours. What was seen is left in seen.json beside the rank's logs.
"""

# No `from __future__ import annotations` here: DDP compares the annotations of a communication hook with the types.
import runpy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ddp_helpers.exercises import amp_problem, note

STEPS, BAD_STEP = 4, 1  # in the bad step somebody has an infinity
MAX_NORMS = (1e9, 1e9, 0.05, 1e9)  # clipping tells in the third step
LR = 0.5

Seen = dict[str, Any]


def main(mode: str, script: str, seed: str) -> None:
    seen: Seen = {"events": [], "dtypes": [], "autocasts": [], "scalers": [], "weights": [], "scales": [], "old": False}
    watch(seen)
    if mode in ("cpu", "cuda"):
        watch_choices(mode, seen)
    dist.init_process_group("gloo")
    functions = runpy.run_path(script, run_name="checked")
    try:
        judge = {"cpu": add_amp, "cuda": add_amp, "order": order}.get(mode, accumulate)
        judge(functions, mode, int(seed), seen)
    finally:
        note.leave(seen)
    dist.destroy_process_group()


# ---- what is watched in every mode ----------------------------------------------------------------------------------


def watch(seen: Seen) -> None:
    """Note each linear layer's output and its dtype, its backward, each clipping, and each step of an optimizer."""
    clip = torch.nn.utils.clip_grad_norm_

    def clip_and_note(*args: Any, **options: Any) -> torch.Tensor:
        norm = clip(*args, **options)
        seen["events"].append(f"clip {float(norm)}")
        return norm

    def note_output(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(module, torch.nn.Linear):
            seen["events"].append("forward")
            seen["dtypes"].append(str(output.dtype).removeprefix("torch."))
            if output.requires_grad:
                output.register_hook(lambda _: seen["events"].append("backward"))

    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = clip_and_note
    torch.nn.modules.module.register_module_forward_hook(note_output)
    register_optimizer_step_pre_hook(lambda *_: seen["events"].append("optimizer"))


def watched_scaler(seen: Seen, **options: Any) -> GradScaler:
    """A scaler whose calls are noted."""

    class Watched(GradScaler):
        def scale(self, outputs: Any) -> Any:
            seen["events"].append("scale")
            return super().scale(outputs)

        def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
            if sys._getframe(1).f_code.co_filename != torch.amp.grad_scaler.__file__:  # step() calls it too
                seen["events"].append("unscale_")
            super().unscale_(optimizer)

        def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
            seen["events"].append("step")
            return super().step(optimizer, *args, **kwargs)

        def update(self, new_scale: float | torch.Tensor | None = None) -> None:
            seen["events"].append("update")
            super().update(new_scale)

    return Watched("cpu", **options)


def ddp_model(seed: int) -> DistributedDataParallel:
    net = torch.nn.Linear(amp_problem.FEATURES, amp_problem.CLASSES)
    start = torch.from_numpy(amp_problem.start(seed))
    with torch.no_grad():
        net.weight.copy_(start[:, :-1])
        net.bias.copy_(start[:, -1])
    return DistributedDataParallel(net)


def weights(model: DistributedDataParallel) -> list[list[float]]:
    """Weight and bias side by side, as amp_problem has them; NaN and infinities as text, which JSON can hold."""
    net: Any = model.module
    both = torch.cat([net.weight, net.bias[:, None]], dim=1).detach().double()
    return both.tolist() if both.isfinite().all() else []


def tensors(seed: int, step: int, samples: int, bad: bool) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = map(torch.from_numpy, amp_problem.batch(seed, dist.get_rank(), step, samples))
    return (torch.full_like(x, float("inf")) if bad else x), y


# ---- 06.1 -----------------------------------------------------------------------------------------------------------


def watch_choices(mode: str, seen: Seen) -> None:
    """Note what the script asks autocast and GradScaler for; with "cuda", pretend that there is CUDA."""
    real = torch.autocast

    class Autocast(real):  # type: ignore[misc, valid-type]
        def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None):
            chosen = dtype or (torch.float16 if device_type == "cuda" else torch.bfloat16)
            seen["autocasts"].append([device_type, str(chosen).removeprefix("torch."), enabled])
            right = device_type == mode  # for tensors of the other device, autocast does nothing
            super().__init__("cpu" if right else device_type, chosen, enabled and right, cache_enabled)

    def scaler(device: str = "cuda", *args: Any, **options: Any) -> GradScaler:
        names = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
        options.update(zip(names, args, strict=False))
        wanted = bool(options.pop("enabled", True)) and not (mode == "cpu" and str(device).startswith("cuda"))
        seen["scalers"].append([str(device), wanted])
        return watched_scaler(seen, enabled=wanted, **options)

    def old(*_: Any, **options: Any) -> Any:
        seen["old"] = True
        return Autocast("cuda", options.get("dtype"), options.get("enabled", True))

    torch.autocast = torch.amp.autocast = Autocast
    torch.amp.GradScaler = scaler
    torch.cuda.amp.autocast = old
    torch.cuda.amp.GradScaler = lambda *a, **o: scaler("cuda", *a, **o)
    if mode == "cuda":
        pretend_cuda()


def pretend_cuda() -> None:
    """CUDA is said to be there, and what is sent to it stays on the CPU, where fp16 works too (slowly)."""
    move = torch.Tensor.to

    def stay(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        kept = tuple(arg for arg in args if not str(arg).startswith("cuda"))
        if str(options.get("device", "")).startswith("cuda"):
            options.pop("device")
        return move(tensor, *kept, **options) if kept or options else tensor

    torch.Tensor.to = stay
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.is_current_stream_capturing = lambda: False


def add_amp(functions: dict[str, Any], mode: str, seed: int, seen: Seen) -> None:
    model = ddp_model(seed)
    bad_step = BAD_STEP if mode == "cuda" and dist.get_rank() == 0 else -1
    batches = [tensors(seed, step, amp_problem.SAMPLES, bad=step == bad_step) for step in range(STEPS)]
    device = torch.device("cuda", 0) if mode == "cuda" else torch.device("cpu")
    losses = functions["train"](model, batches, device)
    seen["losses"] = [float(loss) for loss in losses] if isinstance(losses, list | tuple) else repr(losses)
    seen["weights"].append(weights(model))
    seen["kept"] = str(model.module.weight.dtype).removeprefix("torch.")


# ---- 06.2 -----------------------------------------------------------------------------------------------------------


def order(functions: dict[str, Any], mode: str, seed: int, seen: Seen) -> None:
    """Plain fp32 with a scaler that grows every second step; the last rank has an infinity in the bad step."""
    model = ddp_model(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    scaler = watched_scaler(seen, growth_interval=1)
    seen["lrs"] = []
    for step, max_norm in enumerate(MAX_NORMS):
        seen["events"].append("begin")
        bad = step == BAD_STEP and dist.get_rank() == dist.get_world_size() - 1
        x, y = tensors(seed, step, amp_problem.SAMPLES, bad)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        functions["step"](loss, model, optimizer, scaler, scheduler, max_norm)
        seen["weights"].append(weights(model))
        seen["scales"].append(scaler.get_scale())
        seen["lrs"].append(optimizer.param_groups[0]["lr"])


# ---- 06.3 -----------------------------------------------------------------------------------------------------------


def accumulate(functions: dict[str, Any], mode: str, seed: int, seen: Seen) -> None:
    """In fp16 the last rank has an infinity in the first micro-batch of the bad step."""
    model, dtype = ddp_model(seed), getattr(torch, mode)
    count_messages(model, seen)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    scaler = watched_scaler(seen, enabled=dtype == torch.float16)
    size = amp_problem.MICRO_SAMPLES
    bad_step = BAD_STEP if dtype == torch.float16 and dist.get_rank() == dist.get_world_size() - 1 else -1
    for step, max_norm in enumerate(MAX_NORMS):
        seen["events"].append("begin")
        x, y = tensors(seed, step, amp_problem.micro_batches(seed) * size, bad=False)
        if step == bad_step:
            x[:size] = float("inf")
        micro_batches = list(zip(x.split(size), y.split(size), strict=True))
        functions["train_step"](model, optimizer, scaler, micro_batches, dtype, max_norm)
        seen["weights"].append(weights(model))
        seen["scales"].append(scaler.get_scale())


def count_messages(model: DistributedDataParallel, seen: Seen) -> None:
    no_sync: Callable[[], Any] = model.no_sync

    def average(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen["events"].append("all_reduce")
        average = bucket.buffer().div_(dist.get_world_size())
        work = dist.all_reduce(average, async_op=True)
        done: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
        return done

    def noted() -> Any:
        seen["events"].append("no_sync")
        return no_sync()

    model.register_comm_hook(None, average)
    model.no_sync = noted


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(*sys.argv[1:])
