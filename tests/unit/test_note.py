"""What a harness leaves of a rank, and what a check reads of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ddp_helpers.exercises import note
from ddp_helpers.result import Rank, Run


def run_of(*folders: Path) -> Run:
    ranks = [Rank(number, number, None, 0, [folder]) for number, folder in enumerate(folders)]
    return Run("", "", 0, 0.0, "warm", "cpu", "gloo", ranks, [], None, folders[0])


def test_a_check_reads_what_a_rank_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    (tmp_path / "ended_before").mkdir()
    note.leave({"alive": True})
    note.leave({"cases": {1}}, "cases.json", list)
    run = run_of(tmp_path, tmp_path / "ended_before")
    assert note.left_by(run) == {0: {"alive": True}}
    assert note.left_by(run, "cases.json") == {0: {"cases": [1]}}


def test_a_rank_that_was_ended_while_it_wrote_has_left_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))

    def write_half(path: Path, text: str, encoding: str) -> int:
        with path.open("w", encoding=encoding) as file:
            file.write(text[: len(text) // 2])
        raise SystemExit(-15)

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(SystemExit):
        note.leave({"alive": True})
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [len(json.dumps({"alive": True})) // 2]
    assert note.left_by(run_of(tmp_path)) == {}
    assert os.listdir(tmp_path) != ["seen.json"]
