"""tools/build_notebooks.py, with one small lesson that is right and one broken lesson for each rule."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import build_notebooks
import nbformat
import pytest
from build_notebooks import Lesson, LessonError, learner_notebook, main, read_source, solved_notebook
from clean_outputs import replace_host
from nbgrader.nbgraderformat import MetadataValidator

TITLE = "# Is this a lesson?\n"
SMALL = """# Is this a lesson?

One cell, then one exercise.

```{code-cell} ipython3
number = 20
print(number)
```

## 1.1 Double it

```{code-cell} ipython3
:tags: [exercise]

def double(value):
    ### BEGIN SOLUTION
    return 2 * value
    ### END SOLUTION
double(number)
```

```{code-cell} ipython3
check = print
```

```{code-cell} ipython3
:tags: [check]

check("1.1")
### BEGIN HIDDEN TESTS
assert double(1) == 2
### END HIDDEN TESTS
```
"""


def lesson_of(folder: Path, text: str, name: str = "01_small") -> Lesson:
    lesson = Lesson(name, folder)
    lesson.source.parent.mkdir(parents=True, exist_ok=True)
    lesson.source.write_text(text, encoding="utf-8")
    return lesson


def code(body: str, tags: str = "") -> str:
    """A lesson with one code cell."""
    return f"{TITLE}\n```{{code-cell}} ipython3\n{f':tags: [{tags}]' if tags else ''}\n{body}\n```\n"


def cell_with(notebook: Any, text: str) -> Any:
    return next(cell for cell in notebook.cells if text in cell.source)


# ---- the learner's notebook


def test_the_learner_gets_a_stub_for_the_solution_and_no_outputs(tmp_path: Path) -> None:
    notebook = learner_notebook(lesson_of(tmp_path, SMALL))
    exercise = cell_with(notebook, "def double").source
    assert exercise == "def double(value):\n    ...  # your code here\ndouble(number)"
    assert all(
        cell.outputs == [] and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code"
    )


def test_hidden_tests_are_taken_out(tmp_path: Path) -> None:
    assert cell_with(learner_notebook(lesson_of(tmp_path, SMALL)), 'check("1.1")').source == 'check("1.1")'


def test_a_stub_in_a_script_cell_keeps_the_indentation_of_its_marker(tmp_path: Path) -> None:
    script = (
        "%%torchrun --nproc-per-node 2 scripts/01_a.py\nfor epoch in range(3):\n    if epoch:\n"
        "        ### BEGIN SOLUTION\n        print(epoch)\n        ### END SOLUTION\nprint('end')"
    )
    notebook = learner_notebook(lesson_of(tmp_path, code(script, "exercise")))
    lines = notebook.cells[1].source.splitlines()
    assert lines[0] == "%%torchrun --nproc-per-node 2 scripts/01_a.py"
    assert lines[-2:] == ["        ...  # your code here", "print('end')"]
    compile("\n".join(lines[1:]), "stub", "exec")


def test_two_solutions_in_one_cell_become_two_stubs(tmp_path: Path) -> None:
    body = "### BEGIN SOLUTION\na = 1\n### END SOLUTION\nprint()\n### BEGIN SOLUTION\nb = 2\n### END SOLUTION"
    source = learner_notebook(lesson_of(tmp_path, code(body, "exercise"))).cells[1].source
    assert source == "...  # your code here\nprint()\n...  # your code here"


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    lesson = lesson_of(tmp_path, SMALL)
    first = build_notebooks.to_bytes(learner_notebook(lesson))
    assert first == build_notebooks.to_bytes(learner_notebook(lesson))
    assert first.endswith(b"}\n") and b"\r" not in first


def test_a_new_cell_leaves_the_ids_of_the_others(tmp_path: Path) -> None:
    before = {cell.id for cell in read_source(lesson_of(tmp_path, SMALL)).cells}
    longer = SMALL.replace("## 1.1 Double it", "```{code-cell} ipython3\n1 + 1\n```\n\n## 1.1 Double it")
    after = {cell.id for cell in read_source(lesson_of(tmp_path, longer)).cells}
    assert before < after and len(after) == len(before) + 1


def test_equal_cells_get_different_ids(tmp_path: Path) -> None:
    twice = TITLE + "\n```{code-cell} ipython3\n1 + 1\n```\n" * 2
    first, second = read_source(lesson_of(tmp_path, twice)).cells[1:]
    assert first.source == second.source and first.id != second.id


def test_exercises_and_checks_carry_valid_nbgrader_metadata(tmp_path: Path) -> None:
    notebook = read_source(lesson_of(tmp_path, SMALL))
    MetadataValidator().validate_nb(notebook)
    exercise = cell_with(notebook, "def double").metadata.nbgrader
    test = cell_with(notebook, 'check("1.1")').metadata.nbgrader
    assert exercise.grade_id == "01_small-1-1-double-it-exercise" and exercise.solution and not exercise.grade
    assert test.grade_id == "01_small-1-1-double-it-check" and test.grade and test.locked and test.points == 1
    assert "nbgrader" not in cell_with(notebook, "number = 20").metadata


def test_a_check_cell_needs_no_tag(tmp_path: Path) -> None:
    notebook = read_source(lesson_of(tmp_path, code('check("1.1")')))
    assert notebook.cells[1].metadata.nbgrader.grade


def test_grade_ids_under_one_heading_differ(tmp_path: Path) -> None:
    exercise = "\n```{code-cell} ipython3\n:tags: [exercise]\n\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n```\n"
    cells = read_source(lesson_of(tmp_path, TITLE + exercise * 2)).cells
    ids = [cell.metadata.nbgrader.grade_id for cell in cells if "nbgrader" in cell.metadata]
    assert ids == ["01_small-is-this-a-lesson-exercise", "01_small-is-this-a-lesson-exercise-2"]


# ---- one broken lesson for each rule

BROKEN = {
    "no heading": ("```{code-cell} ipython3\n1\n```\n", "the first cell must be text that starts with '# '"),
    "second-level heading first": ("## Not a title\n", "the first cell must be text that starts with '# '"),
    "empty": ("", "the first cell must be text that starts with '# '"),
    "no end": (code("### BEGIN SOLUTION\nx = 1", "exercise"), "unbalanced: BEGIN SOLUTION;"),
    "no begin": (code("x = 1\n### END SOLUTION", "exercise"), "unbalanced: END SOLUTION;"),
    "nested": (
        code("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION\n### END SOLUTION", "exercise"),
        "unbalanced: BEGIN SOLUTION, BEGIN SOLUTION, END SOLUTION, END SOLUTION",
    ),
    "exercise without markers": (code("x = 1", "exercise"), "tagged exercise, but without '### BEGIN SOLUTION'"),
    "markers without a tag": (code("### BEGIN SOLUTION\nx = 1\n### END SOLUTION"), "not the tag exercise"),
    "text as an exercise": (f'{TITLE}\n+++ {{"tags": ["exercise"]}}\n\nWhy?\n', "only a code cell can be an exercise"),
    "long": (code("\n".join(f"x = {n}" for n in range(41))), "41 lines of code; at most 40"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_lesson_is_refused_with_its_reason(tmp_path: Path, rule: str) -> None:
    text, reason = BROKEN[rule]
    lesson = lesson_of(tmp_path, text)
    with pytest.raises(LessonError) as caught:
        read_source(lesson)
    assert reason in str(caught.value) and "01_small" in str(caught.value)


def test_an_error_names_the_cell_its_heading_and_its_first_line(tmp_path: Path) -> None:
    lesson = lesson_of(tmp_path, SMALL.replace("    ### END SOLUTION\n", "", 1))
    with pytest.raises(LessonError, match=r"01_small, cell 4 \(under '1.1 Double it', starts 'def double"):
        read_source(lesson)


def test_blank_lines_and_markers_are_not_counted_as_code(tmp_path: Path) -> None:
    body = "\n\n".join(f"x = {n}" for n in range(40))
    read_source(lesson_of(tmp_path, code(f"### BEGIN SOLUTION\n{body}\n### END SOLUTION", "exercise")))


# ---- the solved notebook


def test_the_solved_notebook_is_run_with_its_solutions(tmp_path: Path) -> None:
    notebook = solved_notebook(lesson_of(tmp_path, SMALL))
    assert cell_with(notebook, "def double").outputs[0].data["text/plain"] == "40"
    assert notebook.metadata == build_notebooks.METADATA
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == [1, 2, 3, 4]


def test_a_failing_cell_is_named_with_its_error(tmp_path: Path) -> None:
    lesson = lesson_of(tmp_path, code("numbr = 1\nnumber + 1"))
    with pytest.raises(LessonError) as caught:
        solved_notebook(lesson)
    message = str(caught.value)
    assert "01_small, cell 2" in message and "NameError: name 'number' is not defined" in message
    assert "\x1b" not in message


def test_running_a_lesson_touches_neither_the_makers_scripts_nor_their_runs(tmp_path: Path) -> None:
    body = "from pathlib import Path\nPath('scripts').mkdir()\nPath('scripts/a.py').write_text('new')\nPath.cwd().name"
    lesson = lesson_of(tmp_path, code(body))
    mine = tmp_path / "notebooks" / "scripts" / "a.py"
    mine.parent.mkdir()
    mine.write_text("mine", encoding="utf-8")
    notebook = solved_notebook(lesson)
    assert mine.read_text(encoding="utf-8") == "mine"
    assert notebook.cells[1].outputs[0].data["text/plain"] == "'notebooks'"


def test_a_lesson_finds_the_data_folder_beside_its_own(tmp_path: Path) -> None:
    lesson = lesson_of(tmp_path, code("print(open('../data/a.txt').read())"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("digits", encoding="utf-8")
    assert solved_notebook(lesson).cells[1].outputs[0].text == "digits\n"


def test_outputs_hold_nothing_of_the_makers_machine(tmp_path: Path) -> None:
    body = (
        "import os, pathlib, sys, jupytext\n"
        "print('pid', os.getpid(), 'again pid =', os.getpid(), 'parent pid', os.getppid())\n"
        "print(pathlib.Path('scripts/a.py').absolute(), pathlib.Path.home() / 'x', pathlib.Path.cwd())\n"
        "print(sys.executable)\n"
        "print(jupytext.__file__, os.__file__, 'MASTER_PORT=43211 port 29500 127.0.0.1:43211 [::1]:51007')\n"
        "print(object(), f'W1130 02:55:01.123000 {os.getpid()} torch/distributed/run.py:12] hello')"
    )
    lines = solved_notebook(lesson_of(tmp_path, code(body))).cells[1].outputs[0].text.splitlines()
    assert lines[0] == "pid 1001 again pid = 1001 parent pid 1002"
    assert lines[1:3] == ["scripts/a.py ~/x .", "…/bin/python"]
    assert lines[3].startswith("…/site-packages/jupytext/__init__.py …/python/os.py MASTER_PORT=50001 port 29500")
    assert lines[3].endswith("127.0.0.1:50001 [::1]:50002")
    assert lines[4] == "<object object at 0x…> W0101 00:00:00.000000 0 torch/distributed/run.py:12] hello"


def test_the_machines_name_is_replaced_as_a_whole_word_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    assert replace_host("node7 node70 my-node7 node7:29500") == "this-machine node70 my-node7 this-machine:29500"


def test_a_widget_leaves_what_shows_without_it_and_nothing_else(tmp_path: Path) -> None:
    body = (
        "import ipywidgets\nfrom IPython.display import display\n"
        "display(ipywidgets.IntSlider())\ndisplay({'text/html': '<b>pid 4242</b>'}, raw=True)"
    )
    notebook = solved_notebook(lesson_of(tmp_path, code(body)))
    assert [dict(output.data) for output in notebook.cells[1].outputs] == [{"text/html": "<b>pid 1001</b>"}]
    assert "widgets" not in notebook.metadata


# ---- the command


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built")
    lesson_of(root, SMALL)
    assert main([], root) == 0
    return root


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Lesson:
    """A small lesson whose two notebooks are built; a copy, so that a test may change it."""
    shutil.copytree(built_once, tmp_path, dirs_exist_ok=True)
    return Lesson("01_small", tmp_path)


def edit_json(path: Path, change: Any) -> None:
    notebook = nbformat.read(path, as_version=4)
    change(notebook.cells)
    nbformat.write(notebook, path)


def test_what_was_just_built_passes_the_check_and_is_not_built_again(
    built: Lesson, capsys: pytest.CaptureFixture[str]
) -> None:
    stamp = built.solved.stat().st_mtime_ns
    assert main(["--check"], built.root) == 0
    assert main([], built.root) == 0
    assert built.solved.stat().st_mtime_ns == stamp
    assert "01_small: unchanged" in capsys.readouterr().out


def test_a_named_lesson_is_run_again_even_if_unchanged(built: Lesson) -> None:
    stamp = built.solved.stat().st_mtime_ns
    assert main(["01_small"], built.root) == 0
    assert built.solved.stat().st_mtime_ns > stamp


def test_an_edited_source_fails_the_check_for_both_files(built: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    built.source.write_text(SMALL.replace("number = 20", "number = 21"), encoding="utf-8")
    assert main(["--check"], built.root) == 1
    printed = capsys.readouterr().out
    assert "notebooks/01_small.ipynb does not follow from notebooks/source/01_small.md. Run: make build" in printed
    assert "notebooks/solved/01_small.ipynb does not follow" in printed


def test_one_changed_byte_in_the_learners_notebook_fails_the_check(
    built: Lesson, capsys: pytest.CaptureFixture[str]
) -> None:
    built.learner.write_bytes(built.learner.read_bytes().replace(b"number = 20", b"number = 22"))
    assert main(["--check"], built.root) == 1
    printed = capsys.readouterr().out
    assert "notebooks/01_small.ipynb" in printed and "solved" not in printed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cells: cells[1].update(execution_count=None), "was not run: 01_small, cell 2"),
        (lambda cells: cells[1].outputs.append(nbformat.v4.new_output("error")), "shows an error: 01_small, cell 2"),
        (lambda cells: cells[1].update(source="number = 22"), "does not follow from"),
        (lambda cells: cells[0].update(id="other"), "does not follow from"),
        (lambda cells: cells.pop(), "does not follow from"),
        (lambda cells: cells[1].outputs[0].update(text="x" * 400_000), "is larger than 400 KB"),
    ],
)
def test_a_solved_notebook_that_was_tampered_with_fails_the_check(
    built: Lesson, capsys: pytest.CaptureFixture[str], change: Any, reason: str
) -> None:
    edit_json(built.solved, change)
    assert main(["--check"], built.root) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("notebooks/solved/01_small.ipynb") and reason in printed


def test_an_error_that_the_lesson_means_to_show_passes(tmp_path: Path) -> None:
    lesson_of(tmp_path, code("1 / 0", "raises-exception"))
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0


def test_missing_and_orphaned_files_fail_the_check(built: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    built.learner.rename(built.learner.with_name("02_gone.ipynb"))
    assert main(["--check"], built.root) == 1
    printed = capsys.readouterr().out
    assert "notebooks/02_gone.ipynb has no source" in printed and "notebooks/01_small.ipynb does not follow" in printed


def test_a_notebook_that_someone_worked_in_is_not_overwritten(
    built: Lesson, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_json(built.learner, lambda cells: cells[1].update(execution_count=1, source="my answer"))
    assert main([], built.root) == 1
    assert "my answer" in built.learner.read_text(encoding="utf-8")
    assert "notebooks/01_small.ipynb has been run" in capsys.readouterr().err


def test_a_solved_notebook_over_the_limit_is_refused_and_names_its_largest_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson = lesson_of(tmp_path, code("print(('x' * 99 + chr(10)) * 4000)"))
    assert main([], tmp_path) == 1
    printed = capsys.readouterr().err
    assert "at most 400" in printed and "01_small, cell 2" in printed
    assert not lesson.solved.exists()


def test_an_unknown_lesson_is_refused_with_those_there_are(built: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["07_nothing"], built.root)
    assert "no source for 07_nothing; there are: 01_small" in capsys.readouterr().err


def test_a_failing_lesson_leaves_the_built_file_as_it_was(built: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    before = built.solved.read_bytes()
    built.source.write_text(SMALL.replace("number = 20", "number = 1 / 0"), encoding="utf-8")
    assert main([], built.root) == 1
    assert built.solved.read_bytes() == before
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_learners_file_is_plain_json_that_jupyterlab_would_save(built: Lesson) -> None:
    text = built.learner.read_text(encoding="utf-8")
    assert json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True) + "\n" == text
