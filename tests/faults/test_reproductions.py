"""Every fault that two ranks on a CPU can show is shown, and explain() names it from the run and from the bare log."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ddp_helpers import Run
from ddp_helpers.faults import Fault, catalogue, explain, reproduce
from ddp_helpers.faults.catalogue import by_id
from ddp_helpers.report import rank_failure

REPRODUCED = [fault for fault in catalogue() if fault.script is not None]
LOUD = [fault for fault in REPRODUCED if not fault.silent]
SILENT = [fault for fault in REPRODUCED if fault.silent]
NUMBERS = re.compile(r"wrong=(\[.*?\]|\S+) right=(\[.*?\]|\S+)")
# The rank at fault; others depend on which rank is faster.
CULPRITS = {"rank-raises": 1, "exit-code-9": 1, "exit-code-11": 1, "exit-code-6": 1, "exit-code-7": 1}
CULPRITS |= {"collective-on-one-rank": 1, "eval-on-rank-zero": 0, "worker-killed": 1}
Runs = Callable[[Fault], Run]


def ids(fault: Fault) -> str:
    return fault.id


@pytest.fixture(scope="module")
def runs_so_far() -> dict[str, Run]:
    return {}


@pytest.fixture
def run_of(
    runs_so_far: dict[str, Run], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Runs:
    """The run of a fault's reproduction: each in a folder of its own, and once, whoever asks."""

    def run_of(fault: Fault) -> Run:
        if fault.id not in runs_so_far:
            monkeypatch.chdir(tmp_path_factory.mktemp(fault.id))
            runs_so_far[fault.id] = reproduce(fault.id)
        return runs_so_far[fault.id]

    return run_of


def bare_log(run: Run) -> str:
    """What a terminal would have shown: all ranks with a prefix, then torchrun."""
    lines = [f"[rank {rank.rank}] {line}" for rank in run.ranks for line in (rank.stdout + rank.stderr).splitlines()]
    agents = [path.read_text("utf-8", "replace") for path in sorted(run.log_dir.glob("node*/agent.log"))]
    return "\n".join([*lines, *agents, ""])


@pytest.mark.parametrize("fault", LOUD, ids=ids)
def test_a_fault_is_named(fault: Fault, run_of: Runs) -> None:
    run = run_of(fault)
    assert (run.exit_code != 0) == (fault.kind != "warning")
    for explanation in (explain(run), explain(bare_log(run))):
        assert [found.id for found in explanation.faults][:1] == [fault.id], repr(explanation)
        assert explanation.root_rank == CULPRITS.get(fault.id, explanation.root_rank)
    assert explain(run).known == (fault.kind not in ("warning", "general", "end") or fault.id == "rank-raises")


@pytest.mark.parametrize("fault", SILENT, ids=ids)
def test_a_silent_fault_prints_what_the_record_says(fault: Fault, run_of: Runs) -> None:
    run = run_of(fault)
    assert run.exit_code == 0
    numbers = [pair for rank in run.ranks for pair in NUMBERS.findall(rank.stdout)]
    assert numbers, "the script prints no wrong=… right=…"
    assert any(wrong != right and right == fault.right and fault.wrong in ("", wrong) for wrong, right in numbers), (
        numbers
    )
    assert not explain(run).known


@pytest.mark.parametrize("fault", REPRODUCED, ids=ids)
def test_a_reproduction_leaves_its_files_beside_its_script(fault: Fault, run_of: Runs) -> None:
    folder = run_of(fault).log_dir.parents[1]
    assert {path.name for path in folder.iterdir()} <= {"scripts", "runs"}


def test_the_cell_hears_of_a_worker_that_was_killed(run_of: Runs) -> None:
    run = run_of(by_id()["worker-killed"])
    assert run.failure is not None
    assert (run.failure.rank, run.failure.exception_type) == (1, "RuntimeError")
    said = rank_failure(run, cell=True).splitlines()
    assert len(said) <= 25
    assert any(line.startswith("worker-killed (lesson 05): ") for line in said)
