"""What takes several GPUs: the bandwidth between them, DataParallel against DDP, and lesson 04's two cells."""

from __future__ import annotations

from .lab import SCRIPTS, Lab
from .ranks import lesson_cell, run_cell, torchrun
from .spread import spread

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = (32 * KIB, 256 * KIB, MIB, 8 * MIB, 64 * MIB, 256 * MIB, GIB)


def bus_bandwidth(lab: Lab) -> None:
    """Bus bandwidth as nccl-tests defines it: 2(n-1)/n × bytes / seconds."""
    n = lab.gpus
    ran = torchrun(
        lab, SCRIPTS / "busbw.py", n, list(map(str, SIZES if lab.on_gpu else SIZES[:1])), ["times"], limit=70
    )
    for size, times in ran.returned[0]["times"].items():
        name = f"{size // GIB} GiB" if size >= GIB else f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
        took = spread(times)
        bandwidth = took.rate(2 * (n - 1) / n * size / 1e9)
        lab.measured(
            f"all_reduce, {lab.places(n)}", name, bandwidth, "GB/s", f"{took.median * 1e6:.0f} µs, the slowest rank's"
        )


def dp_vs_ddp(lab: Lab) -> None:
    n, batch = lab.gpus, 64 if lab.on_gpu else 2
    found = torchrun(lab, SCRIPTS / "dp_vs_ddp.py", n, [str(batch)], ["measured"], limit=85).returned[0]["measured"]
    network = "ResNet50" if lab.on_gpu else "a tiny ResNet"
    workload = f"{network} fp32 batch {batch} per GPU, one batch again and again"
    speed = {}
    for name, (times, peaks) in found.items():
        gpus = 1 if name == "1 GPU" else n
        setting = lab.places(1) if gpus == 1 else f"{name}, {lab.places(n)}"
        speed[name] = spread(times).rate(batch * gpus)
        lab.measured(workload, setting, speed[name], "images/s")
        for number, peak in enumerate(peaks[:gpus] if name != "DDP" else peaks[:1]):
            lab.measured(workload, f"{setting}, peak of GPU {number}", peak / GIB, "GiB")
    ratio = speed["DDP"].median / speed["DataParallel"].median
    lab.measured(workload, f"DDP against DataParallel, {lab.places(n)}", ratio, "times as fast")
    peaks = found["DataParallel"][1]
    lab.claim(
        "04.4", "with DataParallel GPU 0 holds the most memory", bool(peaks) and peaks[0] == max(peaks), str(peaks)
    )


def lesson_04(lab: Lab) -> None:
    real = run_cell(lab, lesson_cell("04_real.py"), 2)
    found = real.returned[0].get("seconds", {}) if real.returned else {}
    for name, took in found.items():
        lab.measured("lesson 04.6, 2 GPUs", name, took * 1e3, "ms a step", "median of 20")
    lab.claim("04.6", "the lesson's cell measures all three", set(found) == {"one GPU", "DataParallel", "DDP"})
    said = run_cell(lab, lesson_cell("04_scalar.py"), 1).output
    heard = "all input tensors were scalars" in said and "tensor([" in said
    lab.claim("04.7", "DataParallel gathers a loss into a vector, and warns", heard, said.strip()[-300:])
