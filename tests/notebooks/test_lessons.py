"""Every lesson, from top to bottom: as a learner opens it, with nothing solved, and with all its solutions."""

from __future__ import annotations

import pytest
from build_notebooks import Lesson, lesson_names, main
from run_course import run_lesson

# A lesson takes about a minute where nothing else runs; each of its cells has a limit of its own.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("name", lesson_names())
def test_run_all_reaches_the_end_with_nothing_solved_and_no_check_passes(name: str) -> None:
    outcome = run_lesson(Lesson(name), unsolved=True)
    assert not outcome.problem, outcome.problem


@pytest.mark.parametrize("name", lesson_names())
def test_the_solved_lesson_runs_and_all_its_checks_pass(name: str) -> None:
    outcome = run_lesson(Lesson(name))
    assert outcome.checks and not outcome.problem, outcome.problem


def test_the_built_notebooks_follow_from_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--check"])
    assert code == 0, capsys.readouterr().out
