"""Training steps of ResNet50 and ViT-B/16 in four precisions: images a second, and the most memory they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from .lab import Lab
from .measure import seconds
from .models import ViT, resnet50
from .spread import Spread


@dataclass(frozen=True)
class Setting:
    """A precision: the tensors' type under autocast (None: no autocast), and whether fp32 products may be TF32."""

    name: str
    dtype: torch.dtype | None = None
    tf32: bool = False
    channels_last: bool = False


@dataclass(frozen=True)
class Workload:
    """A network and its images; the batch is halved until fp32 fits the GPU."""

    name: str
    build: Callable[[], nn.Module]
    batch: int
    image: int


SETTINGS = (
    Setting("FP32"),
    Setting("TF32", tf32=True),
    Setting("FP16", torch.float16),
    Setting("BF16", torch.bfloat16),
)
CHANNELS_LAST = Setting("BF16 channels_last", torch.bfloat16, channels_last=True)


def amp_resnet50(lab: Lab) -> None:
    if lab.on_gpu:
        work = Workload("ResNet50", resnet50, 128, 224)
    else:
        work = Workload("a tiny ResNet", lambda: resnet50((1, 1), 4), 2, 32)
    _all_settings(lab, work, (*SETTINGS, CHANNELS_LAST))


def amp_vit(lab: Lab) -> None:
    if lab.on_gpu:
        work = Workload("ViT-B/16", ViT, 64, 224)
    else:
        work = Workload("a tiny ViT", lambda: ViT(32, 16, 1, 16, 2), 2, 32)
    _all_settings(lab, work, SETTINGS)


def _all_settings(lab: Lab, work: Workload, settings: tuple[Setting, ...]) -> None:
    batch, speeds, peaks = work.batch, {}, {}
    for setting in settings:
        while True:
            try:
                step, peak = measure(lab, work, setting, batch)
                break
            except torch.OutOfMemoryError:
                if setting is not settings[0] or batch < 2:  # the others must have the same batch
                    raise
                batch //= 2
        workload = f"{work.name} batch {batch} {work.image}x{work.image} SGD"
        speeds[setting.name], peaks[setting.name] = step.rate(batch), peak
        lab.measured(workload, setting.name, speeds[setting.name], "images/s", f"a step {step.median * 1e3:.2f} ms")
        if lab.on_gpu:
            lab.measured(workload, setting.name, peak / 2**30, "GiB", "max_memory_allocated of whole steps")
    _claims(lab, speeds, peaks)


def measure(lab: Lab, work: Workload, setting: Setting, batch: int) -> tuple[Spread, int]:
    """Seconds of a training step, and the most bytes it held."""
    torch.set_float32_matmul_precision("high" if setting.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = setting.tf32
    torch.manual_seed(0)
    form = torch.channels_last if setting.channels_last else torch.contiguous_format
    model = work.build().to(lab.device, memory_format=form)
    images = torch.randn(batch, 3, work.image, work.image, device=lab.device).to(memory_format=form)
    labels = torch.randint(1000, (batch,), device=lab.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler(lab.device, enabled=setting.dtype == torch.float16)

    def step() -> None:
        with torch.autocast(lab.device, dtype=setting.dtype, enabled=setting.dtype is not None):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    if lab.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    took = seconds(step, *((8, 30) if lab.on_gpu else (1, 2)))
    return took, torch.cuda.max_memory_allocated() if lab.on_gpu else 0


def _claims(lab: Lab, speeds: dict[str, Spread], peaks: dict[str, int]) -> None:
    speed = {name: value.median for name, value in speeds.items()}
    note = ", ".join(f"{name} {value:.0f}" for name, value in speed.items())
    recent = not lab.on_gpu or torch.cuda.get_device_capability(0) >= (8, 0)  # older ones have no TF32, and no bf16
    quick = min(speed["FP16"], speed["BF16"] if recent else speed["FP16"])
    lab.claim("06.10", "a step is faster in fp16 and bf16 than in fp32", speed["FP32"] < quick, note)
    if recent and lab.check == "amp_vit":
        ordered = speed["FP32"] < speed["TF32"] < speed["FP16"]
        lab.claim("06.10", "the published order holds: FP32, TF32, FP16", ordered, note)
    share = f"bf16 takes {peaks['BF16'] / max(1, peaks['FP32']):.0%} of fp32's"
    lab.claim("06.10", "a step takes less memory in bf16 than in fp32", peaks["BF16"] < peaks["FP32"], share)
