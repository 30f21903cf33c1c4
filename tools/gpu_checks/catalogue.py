"""All checks, in the order in which they run: what proves most in the least time comes first."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from .lab import Lab


@dataclass(frozen=True)
class Check:
    """One check: `function` of `module`, at most `limit` seconds, on at least `gpus` GPUs."""

    name: str
    module: str
    function: str
    limit: float
    asks: str
    gpus: int = 1

    def run(self, lab: Lab) -> None:
        getattr(importlib.import_module(f"gpu_checks.{self.module}"), self.function)(lab)


CHECKS = (
    Check("doctor", "machine", "doctor_through_nvml", 60, "does doctor() find what torch finds, through NVML alone?"),
    Check("warm_engine", "engine", "warm_engine", 90, "does CUDA work in the warm engine's forks, and is it let go?"),
    Check("refusal", "nccl", "two_ranks_on_one_gpu", 75, "does NCCL refuse two ranks on one GPU, and explain() know?"),
    Check("one_rank", "nccl", "one_rank", 60, "NCCL with one rank: wait(), DDP, a tensor on the CPU"),
    Check("collectives", "nccl", "lesson_02_table", 75, "lesson 02.5's table, its NCCL column"),
    Check("autocast", "precision", "autocast", 75, "what lessons 06.2, 06.6 and 06.9 say of CUDA"),
    Check("speed_06", "precision", "lesson_06_speed", 60, "lesson 06.10's two cells, on this GPU"),
    Check("amp_resnet50", "amp", "amp_resnet50", 80, "ResNet50 in fp32, TF32, fp16, bf16: speed and memory"),
    Check("amp_vit", "amp", "amp_vit", 80, "ViT-B/16 in fp32, TF32, fp16, bf16: speed and memory"),
    Check("timeline", "timeline", "timeline_of_a_gpu", 60, "is a trace of CUDA read and drawn?"),
    Check("all_reduce_busbw", "several", "bus_bandwidth", 75, "bus bandwidth of all_reduce by size", gpus=2),
    Check("dp_vs_ddp", "several", "dp_vs_ddp", 90, "ResNet50: one GPU, DataParallel, DDP", gpus=2),
    Check("lesson_04", "several", "lesson_04", 60, "lesson 04.6's measurement and 04.7's gathered loss", gpus=2),
)
BY_NAME = {check.name: check for check in CHECKS}
