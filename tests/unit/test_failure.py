"""Which rank failed first, from what a run leaves; and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_helpers.outcome import find_failure, read_ranks
from ddp_helpers.report import rank_failure
from ddp_helpers.result import Run

ECHO = "[gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:18336. This is typically caused by …"


def raised(kind: str, text: str, time: float, line: int = 3) -> dict[str, Any]:
    frames = [["/n/scripts/a.py", line, "<module>", "work()"], ["/torch/x.py", 9, "inner", "boom()"]]
    ours = {"type": kind, "text": text, "frames": frames, "traceback": "…", "time": time, "script": "/n/scripts/a.py"}
    return {"message": {}, "ddp_helpers": ours}


def run_of(
    folder: Path, errors: dict[int, dict[str, Any]], codes: dict[int, int], n: int = 3, reported: bool = True
) -> Run:
    for rank in range(n):
        attempt = folder / "node0" / "run_x" / "attempt_0" / str(rank)
        attempt.mkdir(parents=True)
        (attempt / "stdout.log").write_text("hello\n" * 50)
        (attempt / "stderr.log").write_text("")
        (attempt / "rank.json").write_text(json.dumps({"rank": rank, "local_rank": rank, "pid": 100 + rank}))
        if rank in errors:
            (attempt / "error.json").write_text(json.dumps(errors[rank]))
    failures = {rank: {"exit_code": code, "pid": 100 + rank} for rank, code in codes.items()}
    (folder / "node0" / "failures.json").write_text(json.dumps({"failures": failures}))
    ranks = read_ranks(folder, n, reported)
    return Run("scripts/a.py", "", 1, 1.0, "warm", "cpu", "gloo", ranks, [], find_failure(ranks), folder)


def test_the_earliest_exception_is_the_cause(tmp_path: Path) -> None:
    errors = {0: raised("ValueError", "late", 12.0), 2: raised("KeyError", "'x'", 11.0)}
    failure = run_of(tmp_path, errors, {0: 1, 1: -15, 2: 1}).failure
    assert failure is not None
    assert (failure.rank, failure.exception_type, failure.line, failure.victims) == (2, "KeyError", 3, [1])
    assert [other.rank for other in failure.others] == [0]


def test_an_echo_is_no_cause_even_when_it_is_written_first(tmp_path: Path) -> None:
    """A rank that leaves its group in `finally` closes its connections before its own error is recorded."""
    errors = {0: raised("RuntimeError", ECHO, 10.0), 1: raised("ValueError", "bad", 10.5)}
    failure = run_of(tmp_path, errors, {0: 1, 1: 1}, n=2).failure
    assert failure is not None
    assert (failure.rank, failure.victims) == (1, [0])


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (-11, "SIGSEGV"), (-6, "SIGABRT")])
def test_a_rank_that_died_without_a_word_comes_before_echoes(tmp_path: Path, code: int, name: str) -> None:
    failure = run_of(tmp_path, {0: raised("RuntimeError", ECHO, 10.0)}, {0: 1, 1: code, 2: -15}).failure
    assert failure is not None
    assert (failure.rank, failure.exception_type, failure.victims) == (1, name, [0, 2])


def test_an_exception_comes_before_a_rank_that_torchrun_had_to_kill(tmp_path: Path) -> None:
    failure = run_of(tmp_path, {0: raised("ValueError", "bad", 10.0)}, {0: 1, 1: -9, 2: -15}).failure
    assert failure is not None
    assert failure.rank == 0


def test_an_echo_alone_is_still_told(tmp_path: Path) -> None:
    failure = run_of(tmp_path, {0: raised("RuntimeError", ECHO, 10.0)}, {0: 1}, n=2).failure
    assert failure is not None
    assert failure.rank == 0


@pytest.mark.parametrize(
    "echo",
    [
        ECHO,
        "Gloo connectFullMesh failed with [gloo/pair.cc:144] timed out connecting: SO_ERROR: Connection refused",
        "[gloo/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete",
    ],
)
def test_what_ranks_say_of_one_another_is_an_echo(tmp_path: Path, echo: str) -> None:
    errors = {0: raised("RuntimeError", echo, 10.0), 1: raised("ConnectionError", "Connection refused", 11.0)}
    failure = run_of(tmp_path, errors, {0: 1, 1: 1}, n=2).failure
    assert failure is not None
    assert (failure.rank, failure.victims) == (1, [0])


def test_the_report_names_the_fault_its_meaning_and_its_cure(tmp_path: Path) -> None:
    errors = {
        r: raised("RuntimeError", "CUDA out of memory. Tried to allocate 2 GiB" + "\nx" * 300, 10.0) for r in range(8)
    }
    run = run_of(tmp_path, errors, dict.fromkeys(range(8), 1), n=8)
    for rank in run.ranks:
        (rank.folders[-1] / "stderr.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n")
    said = rank_failure(run, cell=True).splitlines()
    assert len(said) <= 25
    assert any(line.startswith("cuda-oom (lesson 09): This rank's GPU is full.") for line in said)
    assert any(line.startswith("Cure: A smaller batch per rank") for line in said)


def test_the_report_of_an_ordinary_exception_needs_no_catalogue(tmp_path: Path) -> None:
    run = run_of(tmp_path, {0: raised("KeyError", "'x'", 10.0)}, {0: 1}, n=1)
    assert "rank-raises" not in rank_failure(run, cell=True)


def test_exit_codes_are_unknown_when_torchrun_could_not_report(tmp_path: Path) -> None:
    run = run_of(tmp_path, {}, {}, reported=False)
    assert [rank.exit_code for rank in run.ranks] == [None, None, None]
    assert run.failure is None


def test_the_report_has_the_cause_on_top_and_at_most_25_lines(tmp_path: Path) -> None:
    errors = {r: raised("ValueError", f"bad {r} " + "\nmore" * 300, 10.0 + r) for r in range(8)}
    run = run_of(tmp_path, errors, dict.fromkeys(range(8), 1), n=8)
    said = rank_failure(run, cell=True).splitlines()
    assert said[0] == "rank 0 of 8 failed: ValueError: bad 0 "
    assert len(said) <= 25
    assert "  raised in x.py, line 9, in inner" in said
    assert "  called from cell line 4:  work()" in said
    assert any("Rank 1 failed too" in line for line in said)


def test_a_rank_that_had_reached_its_scripts_end_did_not_fall_with_another(tmp_path: Path) -> None:
    """torchrun ended it with SIGTERM while its interpreter shut down."""
    run = run_of(tmp_path, {0: raised("RuntimeError", ECHO, 10.0)}, {0: 1, 1: -15, 2: -15})
    (run.ranks[1].folders[-1] / "imported.json").write_text("{}")
    failure = find_failure(run.ranks)
    assert failure is not None
    assert (failure.rank, failure.finished, failure.victims) == (0, [1], [2])
