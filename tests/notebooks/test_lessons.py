"""Every lesson, from top to bottom: as a learner opens it, with nothing solved, and with all its solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nbformat
import pytest
from build_notebooks import ROOT, Lesson, execute, grading_kind, lesson_names, main, read_source, scratch_copy

LEARNER_NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def run(name: str, read: Callable[[Lesson], Any]) -> Any:
    """Run a notebook in a scratch copy of its folder; a cell that fails raises LessonError, which names it."""
    lesson = Lesson(name)
    notebook = read(lesson)
    with scratch_copy(ROOT) as scratch:
        execute(lesson, notebook, scratch)
    return notebook


def read_learner(lesson: Lesson) -> Any:
    return nbformat.read(lesson.learner, as_version=4)


def checks_passed(notebook: Any) -> dict[str, bool]:
    """Each cell that checks an exercise, and whether its output says that the exercise is right."""
    cells = [cell for cell in notebook.cells if grading_kind(cell) == "check"]
    return {cell.source: "✔" in str(cell.outputs) for cell in cells}


@pytest.mark.parametrize("name", LEARNER_NOTEBOOKS)
def test_run_all_reaches_the_end_with_nothing_solved_and_no_check_passes(name: str) -> None:
    assert not any(checks_passed(run(name, read_learner)).values())


@pytest.mark.parametrize("name", lesson_names())
def test_the_solved_lesson_runs_and_all_its_checks_pass(name: str) -> None:
    checks = checks_passed(run(name, read_source))
    assert checks and all(checks.values()), checks


def test_the_built_notebooks_follow_from_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--check"])
    assert code == 0, capsys.readouterr().out
