"""The warm engine with CUDA: forks of a process that has imported torch, and must never have started CUDA."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from .lab import SCRIPTS, Lab
from .spread import spread

RETURNS = ("fresh", "numbers", "product", "total", "device_type", "took")
LEFT = 64 * 2**20  # bytes; a CUDA context alone takes several times as much


def warm_engine(lab: Lab) -> None:
    from ddp_helpers import launch
    from ddp_helpers.doctor.nvml import read_gpus

    Path("scripts").mkdir()
    shutil.copy(SCRIPTS / "hello_gpu.py", "scripts")
    before = [gpu.memory_used for gpu in read_gpus().gpus]
    runs = {}
    for engine, repeats in (("warm", 6 if lab.on_gpu else 2), ("cold", 3 if lab.on_gpu else 2)):
        runs[engine] = [
            launch("scripts/hello_gpu.py", returns=RETURNS, engine=engine, timeout=60) for _ in range(repeats)
        ]
        timed = runs[engine][1:] if repeats > 2 else runs[engine]  # the first warm run waits for torch's import
        lab.measured(
            "hello on one rank", f"{engine} engine", spread(run.seconds for run in timed), "s", "from start to end"
        )
        inside = spread(run.ranks[0].returned["took"] for run in timed)
        lab.measured("hello on one rank", f"{engine} engine, in the script", inside, "s", "CUDA, init, an all_reduce")
    found = [run.ranks[0].returned for run in runs["warm"]]
    first = runs["warm"][0]
    lab.claim("DESIGN 4", "one rank gets the GPU and NCCL", (first.device, first.backend) == ("cuda", "nccl"))
    worked = all(one["device_type"] == "cuda" and one["product"] == 256 and one["total"] == 1 for one in found)
    lab.claim("DESIGN 4", "CUDA works in every fork of the warm engine", worked)
    lab.claim("DESIGN 4", "no fork finds CUDA started", all(one["fresh"] for one in found))
    different = len({tuple(one["numbers"]) for one in found}) == len(found)
    lab.claim("DESIGN 4", "unseeded random numbers on the GPU differ from run to run", different)
    _nothing_is_left(lab, before)
    _more_ranks_than_gpus(lab)


def _nothing_is_left(lab: Lab, before: list[int]) -> None:
    """The driver frees the memory of a process that has ended a little later: it is asked until it has, for a while."""
    from ddp_helpers.doctor.nvml import read_gpus

    until = time.monotonic() + 5
    while True:
        now = [gpu.memory_used for gpu in read_gpus().gpus]
        more = max((b - a for a, b in zip(before, now, strict=True)), default=0)
        if more < LEFT or time.monotonic() > until:
            break
        time.sleep(0.2)
    lab.claim(
        "DESIGN 2.6", "after the runs no GPU memory is held", more < LEFT, f"{more / 2**20:.0f} MiB more than before"
    )


def _more_ranks_than_gpus(lab: Lab) -> None:
    """Where a run has more ranks than there are GPUs, it goes to the CPU."""
    from ddp_helpers import launch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if lab.on_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = (hidden or "0").split(",")[0]
    run = launch("scripts/hello_gpu.py", nproc_per_node=2, returns=["total", "device_type"], timeout=60)
    there = [rank.returned for rank in run.ranks]
    right = run.backend == "gloo" and all(one == {"total": 2.0, "device_type": "cpu"} for one in there)
    lab.claim("DESIGN 4", "two ranks on a machine with one GPU run on the CPU with gloo", right)
    if hidden is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = hidden
    elif lab.on_gpu:
        del os.environ["CUDA_VISIBLE_DEVICES"]
