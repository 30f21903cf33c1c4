"""The folders of runs: numbered, and the newest kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddp_helpers import __main__, runs


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def names() -> list[str]:
    return sorted(folder.name for folder in Path("runs").iterdir())


def test_folders_are_numbered_on_and_never_shared() -> None:
    first, second = runs.new_folder("scripts/a.py"), runs.new_folder("scripts/a.py")
    Path("runs/0009-other").mkdir()
    assert [first.name, second.name, runs.new_folder("b.py").name] == ["0001-a", "0002-a", "0010-b"]


def test_the_newest_stay_and_runs_in_progress_too() -> None:
    for _ in range(6):
        runs.finished(runs.new_folder("a.py"))
    (Path("runs") / "0001-a" / runs.IN_PROGRESS).write_text(str(os.getpid()))
    Path("runs/predictions.json").write_text("{}", encoding="utf-8")
    assert runs.prune(Path("runs"), keep=2) == 3
    assert names() == ["0001-a", "0005-a", "0006-a", "predictions.json"]


def test_a_run_whose_kernel_died_does_not_stay_for_ever() -> None:
    folder = runs.new_folder("a.py")
    (folder / runs.IN_PROGRESS).write_text("999999999")
    assert runs.prune(Path("runs"), keep=0) == 1


def test_named_pipes_do_not_outlive_a_run() -> None:
    folder = runs.new_folder("a.py")
    rank = folder / "node0" / "run_x" / "attempt_0" / "0"
    rank.mkdir(parents=True)
    os.mkfifo(rank / "where")
    runs.finished(folder)
    assert not (rank / "where").exists()


def test_clean_removes_finished_runs_and_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        runs.finished(runs.new_folder("a.py"))
    assert __main__.main(["clean", ".", "--keep", "1"]) == 0
    assert "2 runs removed" in capsys.readouterr().out
    assert names() == ["0003-a"]


def test_clean_of_a_folder_without_runs_removes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["clean", "nowhere"]) == 0
    assert "0 runs removed" in capsys.readouterr().out
