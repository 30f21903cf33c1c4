"""Timelines of real runs: six layers under DDP, the figures held against sums over the traces made another way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddp_helpers import launch, pictures

SCRIPT = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, record_function

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]), bucket_cap_mb=5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step():
    with record_function("data"):
        x = torch.rand(128, 1024)
    with record_function("forward"):
        loss = model(x).square().mean()
    with record_function("backward"):
        loss.backward()
    with record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad()


for _ in range(2):
    train_step()
with profile(record_shapes=True) as prof:
    for _ in range(2):
        train_step()
prof.export_chrome_trace(f"scripts/six_{rank}.json")
dist.barrier()
dist.destroy_process_group()
"""
NOTHING = ("c10d::", "autograd::", "torch::autograd::")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two ranks train six layers; the trace of each."""
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "six.py").write_text(SCRIPT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        launch("scripts/six.py", nproc_per_node=2, timeout=60)
    yield sorted((folder / "scripts").glob("six_*.json"))


def counted(path: Path, first: str, last: str) -> dict[str, float]:
    """The figures of the last `first` to `last`, in ms, counted cell by cell of 5 µs."""
    events = [e for e in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if e["ph"] == "X"]
    start = max(e["ts"] for e in events if e["name"] == first)
    end = max(e["ts"] + e["dur"] for e in events if e["name"] == last)
    cell = 5.0
    grid = {name: np.zeros(int((end - start) / cell) + 1, dtype=bool) for name in ("compute", "launch", "all", "data")}
    for one in events:
        name, category = one["name"], one["cat"]
        kind = ""
        if category == "cpu_op" and "::" in name:
            kind = "launch" if name.startswith("c10d") else "" if name.startswith(NOTHING) else "compute"
        elif category == "user_annotation":
            kind = "all" if name.startswith("gloo:") else "data" if name == "data" else ""
        if kind and one["ts"] + one["dur"] > start:
            left, right = (int(max(t - start, 0) / cell + 0.5) for t in (one["ts"], one["ts"] + one["dur"]))
            grid[kind][left:right] = True
    compute = grid["compute"] & ~grid["launch"] & ~grid["data"]
    sums = {"compute": compute, "communication": grid["all"], "overlap": compute & grid["all"], "data": grid["data"]}
    return {name: float(cells.sum()) * cell / 1e3 for name, cells in sums.items()} | {"step": (end - start) / 1e3}


def test_the_figures_of_a_real_step_are_its_traces_own_sums(traces: list[Path]) -> None:
    shown = pictures.timeline(traces, between=("data", "optimizer"))
    for path, share in zip(traces, shown.ranks, strict=True):
        for name, truth in counted(path, "data", "optimizer").items():
            assert getattr(share, f"{name}_ms") == pytest.approx(truth, rel=0.05, abs=0.1), name
        assert share.compute_ms + share.exposed_ms + share.data_ms + share.other_ms == pytest.approx(
            share.step_ms, abs=0.5
        )
        assert 0 <= share.waiting_ms <= share.communication_ms


def test_a_step_sends_every_gradient_once_in_buckets(traces: list[Path]) -> None:
    shown = pictures.timeline(traces, between="backward")
    for collectives in shown.collectives:
        assert {one.name for one in collectives} == {"all_reduce"}
        assert len(collectives) > 1
        assert sum(one.size or 0 for one in collectives) == 4 * 6 * (1024 * 1024 + 1024)


def test_no_rank_leaves_an_all_reduce_before_the_other_has_entered_it(traces: list[Path]) -> None:
    shown = pictures.timeline(traces)
    assert shown.clock_error_ms == 0 and "one machine" in shown.clock
    for one, other in zip(*shown.collectives, strict=True):
        assert max(one.start, other.start) < min(one.end, other.end)


def test_a_clock_that_is_an_hour_off_changes_nothing_but_the_error(traces: list[Path], tmp_path: Path) -> None:
    truth = pictures.timeline(traces)
    moved: dict[str, Any] = json.loads(traces[1].read_text(encoding="utf-8"))
    moved["host_name"] = "another"
    moved["baseTimeNanoseconds"] += 3_600_000_000_000
    path = tmp_path / "moved.json"
    path.write_text(json.dumps(moved), encoding="utf-8")
    shown = pictures.timeline([traces[0], path])
    assert "aligned" in shown.clock
    for one, other in zip(shown.ranks, truth.ranks, strict=True):
        assert one.overlap_ms == pytest.approx(other.overlap_ms, rel=1e-4)
    apart = [abs(a.end - b.end) for a, b in zip(*truth.collectives, strict=True)]
    ends = [a.end - b.end for a, b in zip(*shown.collectives, strict=True)]
    assert abs(float(np.median(ends))) <= max(apart) + 1e-3
