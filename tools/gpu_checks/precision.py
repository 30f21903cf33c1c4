"""Lesson 06: what it says of CUDA, asked of CUDA."""

from __future__ import annotations

import re
from dataclasses import replace

import torch

from .lab import SCRIPTS, Lab
from .ranks import Cell, lesson_cell, run_cell, torchrun

CUDA_ONLY = ("sum", "exp", "log", "softmax", "layer_norm")  # 06.2: on CUDA's list for fp32, and not on the CPU's
NAN_ENDS = '\nwith torch.autocast("cpu", dtype=torch.float16):\n    print('  # here 06.9's cell begins to search
FIGURE = re.compile(r"^(.*): ([\d.]+) (TFLOP/s|GiB)$")


def autocast(lab: Lab) -> None:
    found = run_cell(lab, lesson_cell("06_autocast.py"), 1).returned[0]
    table, dtypes = found["table"], found["dtypes"]
    for name, (first, second) in table.items():
        lab.measured("lesson 06.2", name, f"{first} {second}", "dtypes", "from float32, from the 16 bits")
    right = "float32" not in table["x @ w"] + table["linear"] and table["x + fp32"] == ["float32", "float32"]
    right = right and table["relu"][0] == "float32" != table["relu"][1]
    lab.claim("06.2", "products in 16 bits, relu follows, of mixed ones the wider wins", right)
    others = {name: table[name] for name in (*CUDA_ONLY, "cross_entropy")}
    lab.claim(
        "06.2",
        "exp, log, softmax, layer_norm, sum, cross_entropy in fp32",
        all(v == ["float32"] * 2 for v in others.values()),
        str(others),
    )
    lab.claim("06.2", "weights and their gradients stay in fp32", set(dtypes.values()) == {"torch.float32"})
    answers = torchrun(lab, SCRIPTS / "cuda_precision.py", 1, [lab.device], ["answers"]).returned[0]["answers"]
    for name, answer in answers.items():
        lab.measured("lesson 06", name, int(answer == "accepted"), "1 = accepted", answer[:300])
    lab.claim("06.2", "CUDA's autocast refuses BCELoss", answers["BCELoss under autocast"] != "accepted")
    fp16 = answers["unscale_ of fp16 weights"]
    lab.claim(
        "06.6", "unscale_ refuses fp16 gradients", fp16 == "ValueError: Attempting to unscale FP16 gradients.", fp16
    )
    _loss_by_hand(lab)


def until_the_search(cell: Cell, device: str) -> Cell:
    """06.9's training without its search for the NaN, on `device`."""
    text, end, _ = cell.text.partition(NAN_ENDS)
    if not end:
        raise LookupError(f"{cell.script} no longer has the line {NAN_ENDS.strip()!r}")
    text = text.replace('"cpu"', f'"{device}"')
    text = text.replace("import torch\n", f'import torch\ntorch.set_default_device("{device}")\n', 1)
    return replace(cell, text=text + "\n", returns=("scales",))


def _loss_by_hand(lab: Lab) -> None:
    cell = until_the_search(lesson_cell("06_nan.py"), lab.device)
    scales = run_cell(lab, cell, 1).returned[0]["scales"]
    note = f"the scale's least value was {min(scales):g}, in {len(scales) - 1} steps"
    lab.claim("06.9", "on CUDA the loss written by hand does not end in NaN", min(scales) >= 1, note)


def lesson_06_speed(lab: Lab) -> None:
    ran = run_cell(lab, lesson_cell("06_speed.py"), 1)
    for device, ratios in ran.returned[0]["ratios"].items():
        for name, ratio in ratios.items():
            lab.measured(f"lesson 06.10, product on {device}", name, ratio, "of fp32's time", "minimum of 5")
    gpu = ran.returned[0]["ratios"].get("cuda", {})
    recent = lab.on_gpu and torch.cuda.get_device_capability(0) >= (8, 0)
    if recent or not lab.on_gpu:
        faster = gpu.get("bfloat16", 9) < 1 and gpu.get("float16", 9) < 1
        lab.claim("06.10", "on a recent GPU products in fp16 and bf16 take less time", faster, str(gpu))
    cell = lesson_cell("06_gpu.py")
    lines = run_cell(lab, cell, 1).returned[0]["lines"]
    figures = {match[1]: float(match[2]) for match in map(FIGURE.match, lines) if match}
    for line in lines:
        if match := FIGURE.match(line):
            lab.measured("lesson 06.10", match[1], float(match[2]), match[3])
    lab.claim("06.10", "the lesson's cell prints four speeds and two peaks", len(figures) == 6 == len(lines))
    peaks = [figures.get(f"peak memory, {name}", 0) for name in ("bf16", "fp32")]
    lab.claim("06.10", "the forward and backward pass takes less memory in bf16", 0 < peaks[0] < peaks[1], str(peaks))
    if recent:
        order = ("torch.float32", "torch.float32 as TF32", "torch.bfloat16")
        slow, tf32, bf16 = (figures.get(name, 0) for name in order)
        lab.claim(
            "06.10", "TF32 is faster than fp32, and bf16 than TF32", slow < tf32 < bf16, f"{slow}, {tf32}, {bf16}"
        )
