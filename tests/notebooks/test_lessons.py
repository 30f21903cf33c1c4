"""Every lesson, from top to bottom, as a learner meets it: first with nothing solved, then one exercise after another.

The whole lesson with its solutions runs when it is built, and with all others in `make course`.
"""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from build_notebooks import Lesson, execute, grading_kind, lesson_names, main, read_source, scratch_copy
from run_course import checks_passed

# A lesson takes about a minute where nothing else runs; each of its cells has a limit of its own.
pytestmark = pytest.mark.timeout(600)


def exercises(notebook: Any) -> list[Any]:
    """The cells of all exercises: from the one that is to be filled in down to its check."""
    found, inside = [], False
    for cell in notebook.cells:
        kind = grading_kind(cell)
        inside = inside or kind == "exercise"
        if inside:
            found.append(cell)
        inside = inside and kind != "check"
    return found


@pytest.mark.parametrize("name", lesson_names())
def test_run_all_reaches_the_end_with_nothing_solved_and_then_each_solution_passes(name: str) -> None:
    lesson = Lesson(name)
    notebook, solved = nbformat.read(lesson.learner, as_version=4), exercises(read_source(lesson))
    opened = notebook.cells
    notebook.cells = opened + solved
    with scratch_copy(lesson.root) as scratch:
        execute(lesson, notebook, scratch)
    before, after = checks_passed(opened), checks_passed(solved)
    assert before and not any(before.values()), before
    assert after.keys() == before.keys() and all(after.values()), after
    for cell in opened:
        if grading_kind(cell) == "check":
            assert "Not attempted yet" in str(cell.outputs), cell.source


def test_the_built_notebooks_follow_from_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--check"])
    assert code == 0, capsys.readouterr().out
