"""tools/run_course.py, on a course of three small lessons: one that holds, one whose check fails, one that stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_notebooks import Lesson
from build_notebooks import main as build
from run_course import main, run_lesson

LESSON = """# Is this a lesson?

```{code-cell} ipython3
:tags: [exercise]
### BEGIN SOLUTION
answer = SOLUTION
### END SOLUTION
```

```{code-cell} ipython3
:tags: [check]
print("✔" if globals().get("answer") == 42 else "not yet")
```
"""


def write(folder: Path, name: str, solution: str) -> Lesson:
    lesson = Lesson(name, folder)
    lesson.source.parent.mkdir(parents=True, exist_ok=True)
    lesson.source.write_text(LESSON.replace("SOLUTION\n###", f"{solution}\n###"), encoding="utf-8")
    return lesson


def test_the_table_tells_lessons_that_hold_from_those_that_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "01_right", "42")
    write(tmp_path, "02_wrong", "41")
    write(tmp_path, "03_stops", "1 / 0")
    assert main([], tmp_path) == 1
    right, wrong, stops, total, *problems = capsys.readouterr().out.splitlines()
    assert right.startswith("01_right") and right.endswith("checks passed  1 of  1   ok")
    assert wrong.startswith("02_wrong") and wrong.endswith("0 of  1   did not hold")
    assert stops.startswith("03_stops") and stops.endswith("did not hold")
    assert total.startswith("3 lessons") and total.endswith("1 of  3   2 did not hold")
    assert "02_wrong: a check fails with its solution" in problems[0]
    assert any("ZeroDivisionError" in line for line in problems)


def test_unsolved_a_check_that_passes_is_a_fault(tmp_path: Path) -> None:
    lesson = write(tmp_path, "01_right", "42")
    assert build(["01_right"], tmp_path) == 0
    assert not run_lesson(lesson, unsolved=True).problem
    given_away = lesson.learner.read_text(encoding="utf-8").replace("...  # your code here", "answer = 42")
    lesson.learner.write_text(given_away, encoding="utf-8")
    assert "a check passes with nothing solved" in run_lesson(lesson, unsolved=True).problem


def test_an_unknown_lesson_is_named_with_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "01_right", "42")
    with pytest.raises(SystemExit):
        main(["01_rihgt"], tmp_path)
    assert "no source for 01_rihgt; there are: 01_right" in capsys.readouterr().err
