"""reproduce(): the script is the learner's, its failure is shown and not raised, and what cannot be run says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_helpers import LaunchError, faults
from ddp_helpers.faults import catalogue
from ddp_helpers.faults.catalogue import by_id
from ddp_helpers.faults.reproduce import Recipe

SCRIPT = Path("scripts/faults/timeout-not-timedelta.py")
WITHOUT = [fault for fault in catalogue() if fault.script is None]


@pytest.fixture(autouse=True)
def notebooks_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_failure_that_is_expected_is_shown_and_returned(capsys: pytest.CaptureFixture[str]) -> None:
    run = faults.reproduce("timeout-not-timedelta")
    assert run.exit_code == 1 and len(run.ranks) == 2 and run.script == SCRIPT.as_posix()
    fault = by_id()["timeout-not-timedelta"]
    assert fault.script is not None and SCRIPT.read_bytes() == fault.script.read_bytes()
    shown = capsys.readouterr().out
    assert "torchrun --nproc-per-node 2 scripts/faults/timeout-not-timedelta.py" in shown
    assert "RankFailed, as expected: rank " in shown and f"Cure: {fault.cure}" in shown


def test_an_edited_script_is_left_as_it_is() -> None:
    SCRIPT.parent.mkdir(parents=True)
    SCRIPT.write_text("print('mine')\n", encoding="utf-8")
    with pytest.raises(LaunchError, match="was edited"):
        faults.reproduce("timeout-not-timedelta")
    assert SCRIPT.read_text(encoding="utf-8") == "print('mine')\n" and not Path("runs").exists()
    faults.reproduce("timeout-not-timedelta", force=True)
    assert Path(f"{SCRIPT}.bak").read_text(encoding="utf-8") == "print('mine')\n"


def test_arguments_and_processes_are_those_of_the_scripts_first_line(tmp_path: Path) -> None:
    script = tmp_path / "x.py"
    script.write_text("# torchrun --nproc-per-node 3 x.py --name 'a b'\n", encoding="utf-8")
    recipe = Recipe.of(script)
    assert (recipe.processes, recipe.arguments) == (3, ("--name", "a b"))
    script.write_text("import torch\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.py"):
        Recipe.of(script)


def test_a_silent_fault_says_that_no_rank_failed(capsys: pytest.CaptureFixture[str]) -> None:
    run = faults.reproduce("uneven-inputs-silent")
    assert run.exit_code == 0
    shown = capsys.readouterr().out
    assert "wrong=" in shown and "No rank failed, as expected: this fault is silent." in shown


@pytest.mark.parametrize(
    ("id", "near"),
    [("port-takn", "port-taken"), ("Port-Taken", "port-taken"), ("reentrant", "reentrant-checkpointing")],
)
def test_an_unknown_name_is_answered_with_near_ones(id: str, near: str) -> None:
    with pytest.raises(LaunchError, match=f"no fault '{id}'. Near it: .*{near}"):
        faults.reproduce(id)


@pytest.mark.parametrize("id", ["", "qqqqqqqq"])
def test_a_name_that_is_like_none_leads_to_the_table(id: str) -> None:
    with pytest.raises(LaunchError, match=rf"no fault '{id}'\.\nfaults.table\(\)"):
        faults.reproduce(id)


@pytest.mark.parametrize("id", [fault.id for fault in WITHOUT])
def test_a_fault_that_cannot_be_run_here_says_why_and_writes_nothing(id: str) -> None:
    fault = by_id()[id]
    reason = {"gpu": "needs a GPU", "two nodes": "needs two nodes", "container": "needs a container"}.get(fault.needs)
    with pytest.raises(LaunchError) as raised:
        faults.reproduce(id)
    said = str(raised.value)
    assert (reason or fault.no_script or "reproduce rank-raises") in said and fault.cure in said
    assert not list(Path.cwd().iterdir())
