"""NCCL: what it does with one rank, what it refuses, and lesson 02.5's table on this machine."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from .lab import SCRIPTS, Lab
from .ranks import Cell, lesson_cell, run_cell, torchrun

SAME_GPU = "Duplicate GPU detected|using the same GPU"  # NCCL's words, which have changed once
# Answers of which lesson 02.5 says nothing for NCCL: what NCCL has no type or no rounding for.
FREE = ("sum of int16", "AVG of int64")


def one_rank(lab: Lab) -> None:
    names = ("still_busy", "right", "same_gradients", "object_bytes", "refused")
    ran = torchrun(lab, SCRIPTS / "one_rank.py", 1, returns=names)
    found = ran.returned[0]
    lab.claim("02.7", "wait() does not stop Python: the GPU was still at work when it returned", found["still_busy"])
    lab.claim("02.7", "and the tensor is right for what follows in the stream", found["right"])
    lab.claim("03", "DDP with one rank on NCCL has the gradients of the model alone", found["same_gradients"])
    lab.measured("all_gather_object of 4 MiB", "memory of the GPU", found["object_bytes"] / 2**20, "MiB")
    lab.claim("02.4", "objects travel through the current GPU", found["object_bytes"] >= 2**22)
    said = found["refused"].strip()
    lab.claim("02.5", "NCCL refuses a tensor on the CPU", bool(said), said.splitlines()[-1][:300] if said else "")
    if said or not lab.on_gpu:
        _explained(lab, "nccl-cpu-tensor", "".join(f"[rank0]: {line}\n" for line in said.splitlines()))


def two_ranks_on_one_gpu(lab: Lab) -> None:
    """On a machine with several GPUs all but the first are hidden."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0" if lab.on_gpu else "").split(",")[0]
    env = {"CUDA_VISIBLE_DEVICES": visible, "NCCL_DEBUG": "WARN"}
    ran = torchrun(lab, SCRIPTS / "two_on_one.py", 2, env=env, limit=60, check=False)
    said = [line.strip() for line in ran.output.splitlines() if "NCCL WARN" in line or "Error: " in line]
    refused = ran.code != 0 and "summed" not in ran.output and re.search(SAME_GPU, ran.output) is not None
    lab.claim("02.5", "NCCL refuses two ranks on one GPU", refused, " | ".join(said[:3])[:600])
    lab.keep.mkdir(parents=True, exist_ok=True)
    (lab.keep / "two_ranks_on_one_gpu.log").write_text(ran.output, encoding="utf-8")
    _explained(lab, "nccl-duplicate-gpu", ran.output)


def _explained(lab: Lab, fault: str, log: str) -> None:
    try:
        from ddp_helpers import explain
    except ImportError as error:
        lab.skipped(f"explain() of {fault}", str(error))
        return
    explanation = explain(log + "\n")
    found = explanation.fault.id if explanation.fault else "nothing"
    lab.claim(
        "09", f"explain() names {fault}", explanation.known and found == fault, f"{found}: {explanation.headline}"[:300]
    )


def without_sending(cell: Cell) -> Cell:
    """02.5's table for a single rank, which has nobody to send to: gloo would wait for it."""
    lines = cell.text.splitlines(keepends=True)
    kept = [line for line in lines if not line.lstrip().startswith('"send, recv":')]
    if len(kept) != len(lines) - 1:
        raise LookupError(f"{cell.script} no longer has one line for send and recv")
    return replace(cell, text="".join(kept))


def lesson_02_table(lab: Lab) -> None:
    """The lesson's own cell, with a rank for each of at most two GPUs."""
    cell, ranks = lesson_cell("02_backends.py"), min(2, lab.gpus) if lab.on_gpu else 1
    found = run_cell(lab, cell if ranks > 1 else without_sending(cell), ranks).returned[0]
    table, (nccl, cuda) = found["table"], found["available"]
    for (name, place), answer in table.items():
        where = f"lesson 02.5, {lab.places(ranks)}"
        lab.measured(where, f"{place}: {name}", int(answer == "yes"), "1 = yes", answer[:300])
    lab.claim("02.5", "is_nccl_available() and torch.cuda.is_available() are True", nccl and cuda, f"{nccl}, {cuda}")
    column = {name: answer for (name, place), answer in table.items() if place.startswith("nccl")}
    refused = [name for name, answer in column.items() if answer != "yes" and name not in FREE]
    all_done = bool(column) and not refused
    lab.claim("02.5", "NCCL does every collective on GPUs", all_done, f"refused: {refused or 'none'}")
