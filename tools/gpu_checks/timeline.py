"""Traces that a GPU wrote, read and drawn by what lesson 10 uses. They are kept beside the CSV, with the picture."""

from __future__ import annotations

import gzip
from pathlib import Path

from .lab import SCRIPTS, Lab
from .ranks import torchrun


def timeline_of_a_gpu(lab: Lab) -> None:
    from ddp_helpers.traces import find_traces

    folder = lab.scratch / "traces"
    folder.mkdir()
    torchrun(lab, SCRIPTS / "traced_step.py", ranks := min(2, lab.gpus), [str(folder)])
    lab.keep.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        (lab.keep / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    traces = find_traces(folder)
    lab.claim("10.3", "a trace of a GPU is read as one: its kernels are there", all(trace.on_gpu for trace in traces))
    kinds = sorted({one.name for trace in traces for one in trace.collectives})
    if ranks > 1:
        lab.claim("10.3", "NCCL's kernels are read as collectives", "all_reduce" in kinds, f"found: {kinds}")
    else:
        lab.measured(
            f"traced steps of {lab.places(1)}",
            "collectives in the trace",
            sum(len(t.collectives) for t in traces),
            "collectives",
            f"{kinds}",
        )
    copied = all(trace.data for trace in traces)
    lab.claim("10.3", "the batch's copy to the GPU counts as data", copied)
    _draw(lab, folder, ranks)


def _draw(lab: Lab, folder: Path, ranks: int) -> None:
    from ddp_helpers import pictures

    shown = pictures.timeline(folder, between="step")
    shown.figure.savefig(lab.keep / "timeline.png")
    mean = shown.mean
    for name in ("step_ms", "compute_ms", "communication_ms", "overlap_ms", "waiting_ms", "data_ms"):
        lab.measured(
            f"traced step of {lab.places(ranks)}, 8 layers of {2048 if lab.on_gpu else 64}",
            name.removesuffix("_ms"),
            getattr(mean, name),
            "ms",
            "in the trace",
        )
    lab.claim("10.3", "the picture has a step in which the GPU computes", 0 < mean.compute_ms <= mean.step_ms)
