"""What a check reads of the ranks that it ran."""

from __future__ import annotations

from pathlib import Path

from ddp_helpers.exercises.attempt import left_by
from ddp_helpers.result import Rank, Run


def test_a_rank_that_was_ended_while_it_wrote_has_left_nothing(tmp_path: Path) -> None:
    ranks = []
    for number, text in enumerate(['{"alive": true}', "", '{"alive": tr', None]):
        folder = tmp_path / str(number)
        folder.mkdir()
        if text is not None:
            (folder / "seen.json").write_text(text, encoding="utf-8")
        ranks.append(Rank(number, number, None, 0, [folder]))
    run = Run("", "", 0, 0.0, "warm", "cpu", "gloo", ranks, [], None, tmp_path)
    assert left_by(run, "seen.json") == {0: {"alive": True}}
