"""Build the notebooks that people open from the lessons' sources.

    python tools/build_notebooks.py                every lesson whose source changed
    python tools/build_notebooks.py 01_ranks       this lesson, even if its source did not change
    python tools/build_notebooks.py --all          every lesson, after a change in ddp_helpers
    python tools/build_notebooks.py --check        build nothing; say which built file does not follow from its source

From notebooks/source/NN_topic.md (MyST Markdown, solutions included) come

    notebooks/NN_topic.ipynb           the learner's: solutions taken out, nothing run
    notebooks/solved/NN_topic.ipynb    run from top to bottom; keeps the solution markers: it is nbgrader's source too

jupytext reads, nbgrader takes solutions out, nbclient runs. Exercise cells carry the tag `exercise` and hold
`### BEGIN SOLUTION` and `### END SOLUTION`; a cell that starts with check(…) grades the exercise above it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from clean_outputs import OutputCleaner
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions

ROOT = Path(__file__).resolve().parent.parent
STUB = "...  # your code here"
BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"
MAX_CODE_LINES = 40
MAX_SOLVED_BYTES = 400_000
CELL_TIMEOUT = 120
# No version numbers and no display names: they would change with the maker's machine.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class LessonError(Exception):
    """What is wrong with a lesson, and where."""


@dataclass(frozen=True)
class Lesson:
    """One lesson's three files, in the repository or a copy of it at `root`."""

    name: str
    root: Path = ROOT

    @property
    def source(self) -> Path:
        return self.root / "notebooks" / "source" / f"{self.name}.md"

    @property
    def learner(self) -> Path:
        return self.root / "notebooks" / f"{self.name}.ipynb"

    @property
    def solved(self) -> Path:
        return self.root / "notebooks" / "solved" / f"{self.name}.ipynb"


def lesson_names(root: Path = ROOT) -> list[str]:
    """The lessons that have a source, in order."""
    return sorted(path.stem for path in (root / "notebooks" / "source").glob("[0-9][0-9]_*.md"))


# ---- from source to the two notebooks


def read_source(lesson: Lesson) -> Any:
    """The lesson with its solutions, not run: rules checked, ids and grading metadata set."""
    notebook = jupytext.reads(lesson.source.read_text(encoding="utf-8"), fmt="md:myst")
    check_rules(lesson, notebook)
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    set_ids(lesson, notebook)
    set_grading(lesson, notebook)
    return notebook


def learner_notebook(lesson: Lesson) -> Any:
    """The lesson without solutions and hidden tests. nbgrader keeps the indentation of the BEGIN SOLUTION line."""
    notebook = read_source(lesson)
    notebook, resources = ClearSolutions(code_stub={"python": STUB}).preprocess(notebook, {})
    notebook, _ = ClearHiddenTests().preprocess(notebook, resources)
    return notebook


def solved_notebook(lesson: Lesson) -> Any:
    """The lesson with solutions, run from top to bottom."""
    notebook = read_source(lesson)
    with scratch_copy(lesson.root) as scratch:
        execute(lesson, notebook, scratch)
        OutputCleaner(scratch).clean(notebook)
    notebook.metadata = nbformat.from_dict(METADATA)  # the kernel added its version
    return notebook


def to_bytes(notebook: Any) -> bytes:
    """The file's content: what JupyterLab would save, with Unix line endings everywhere."""
    nbformat.validate(notebook)
    return (nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n").encode("utf-8")


# ---- the rules of a lesson's source


def check_rules(lesson: Lesson, notebook: Any) -> None:
    """Raise LessonError for the first cell that breaks a rule."""
    first = notebook.cells[0] if notebook.cells else None
    if first is None or first.cell_type != "markdown" or not first.source.startswith("# "):
        raise LessonError(f"{lesson.name}: the first cell must be text that starts with '# ' and the lesson's question")
    for index, cell in enumerate(notebook.cells):
        problem = cell_problem(cell)
        if problem:
            raise LessonError(f"{where(lesson, notebook, index)}: {problem}")


def cell_problem(cell: Any) -> str | None:
    """What is wrong with one cell, or None."""
    exercise = "exercise" in cell.metadata.get("tags", [])
    if cell.cell_type != "code":
        return "only a code cell can be an exercise" if exercise else None
    lines = cell.source.splitlines()
    markers = [BEGIN if BEGIN in line else END for line in lines if BEGIN in line or END in line]
    if markers != [BEGIN, END] * (len(markers) // 2):
        return f"solution markers are unbalanced: {', '.join(markers)}; each {BEGIN} needs one {END} after it"
    if exercise and not markers:
        return f"tagged exercise, but without '### {BEGIN}' and '### {END}' around the solution"
    if markers and not exercise:
        return "it holds a solution, but not the tag exercise"
    count = sum(1 for line in lines if line.strip() and BEGIN not in line and END not in line)
    if count > MAX_CODE_LINES:
        return f"{count} lines of code; at most {MAX_CODE_LINES} fit on a screen"
    return None


def where(lesson: Lesson, notebook: Any, index: int) -> str:
    """Names a cell so that it is found in the source: lesson, number, heading above it, first line."""
    first_line = next((line for line in notebook.cells[index].source.splitlines() if line.strip()), "")
    return f"{lesson.name}, cell {index + 1} (under '{heading(notebook, index)}', starts '{first_line[:60]}')"


def heading(notebook: Any, index: int) -> str:
    """The last heading at or above a cell."""
    for cell in reversed(notebook.cells[: index + 1]):
        if cell.cell_type == "markdown":
            found = re.findall(r"^#{1,6} +(.+)$", cell.source, flags=re.MULTILINE)
            if found:
                return str(found[-1]).strip()
    return ""


# ---- cell ids and nbgrader's metadata


def set_ids(lesson: Lesson, notebook: Any) -> None:
    """Ids that follow from the cell's text: the same in every build, and unmoved when a cell above is added."""
    seen: Counter[str] = Counter()
    for cell in notebook.cells:
        text = f"{lesson.name}\n{cell.cell_type}\n{cell.source}"
        cell.id = hashlib.sha256(f"{text}\n{seen[text]}".encode()).hexdigest()[:12]
        seen[text] += 1


def set_grading(lesson: Lesson, notebook: Any) -> None:
    """Mark exercises and their checks for nbgrader (its cell metadata, schema version 3)."""
    seen: Counter[str] = Counter()
    for index, cell in enumerate(notebook.cells):
        kind = grading_kind(cell)
        if kind is None:
            continue
        slug = re.sub(r"[^a-z0-9]+", "-", heading(notebook, index).lower()).strip("-")[:40].rstrip("-")
        grade_id = f"{lesson.name}-{slug}-{kind}"
        seen[grade_id] += 1
        if seen[grade_id] > 1:
            grade_id = f"{grade_id}-{seen[grade_id]}"
        test = kind == "check"
        grading = {"grade": test, "grade_id": grade_id, "locked": test, "schema_version": 3}
        cell.metadata["nbgrader"] = grading | {"solution": not test, "task": False} | ({"points": 1} if test else {})


def grading_kind(cell: Any) -> str | None:
    """'exercise', 'check' or None."""
    tags = cell.metadata.get("tags", [])
    if cell.cell_type != "code":
        return None
    if "exercise" in tags:
        return "exercise"
    return "check" if "check" in tags or cell.source.lstrip().startswith("check(") else None


# ---- running


@contextmanager
def scratch_copy(root: Path) -> Iterator[Path]:
    """A temporary folder with notebooks/ and data/ as a learner finds them: the maker's scripts and runs stay as is."""
    with tempfile.TemporaryDirectory(prefix="lesson-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        skip = shutil.ignore_patterns("source", "solved", "scripts", "runs", ".ipynb_checkpoints")
        shutil.copytree(root / "notebooks", scratch / "notebooks", ignore=skip)
        if (root / "data").is_dir():
            shutil.copytree(root / "data", scratch / "data")
        yield scratch


def execute(lesson: Lesson, notebook: Any, scratch: Path) -> None:
    """Run all cells in `scratch`/notebooks with this Python; LessonError names the cell that failed."""
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(scratch / "notebooks")}},
        store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],  # ipykernel warns of TCP on loopback, for each lesson
        record_timing=False,
        coalesce_streams=True,
    )
    # A fresh IPython folder: the maker's start-up files and history must not show in a lesson.
    with client.setup_kernel(env=os.environ | {"IPYTHONDIR": str(scratch / "ipython")}):
        for index, cell in enumerate(notebook.cells):
            try:
                client.execute_cell(cell, index)
            except CellExecutionError as error:
                text = re.sub(r"\x1b\[[0-9;]*m", "", error.traceback)
                message = f"{error.ename}: {error.evalue}\n{text}"
                raise LessonError(f"{where(lesson, notebook, index)} failed. {message}") from error
            except CellTimeoutError as error:
                raise LessonError(f"{where(lesson, notebook, index)} took more than {CELL_TIMEOUT} s") from error
            except DeadKernelError as error:
                raise LessonError(f"{where(lesson, notebook, index)} ended the kernel") from error


# ---- does a built file follow from its source?


def problems(lesson: Lesson) -> list[str]:
    """What is wrong with the built files of a lesson, without running it."""
    found = []
    if not lesson.learner.is_file() or lesson.learner.read_bytes() != to_bytes(learner_notebook(lesson)):
        found.append(f"{relative(lesson.learner, lesson)} does not follow from {relative(lesson.source, lesson)}")
    problem = solved_problem(lesson)
    if problem:
        found.append(f"{relative(lesson.solved, lesson)} {problem}")
    return found


def solved_problem(lesson: Lesson) -> str | None:
    """What is wrong with the solved notebook of a lesson, or None: same cells as the source, all run, without error."""
    if not lesson.solved.is_file():
        return "is missing"
    if lesson.solved.stat().st_size > MAX_SOLVED_BYTES:
        return f"is larger than {MAX_SOLVED_BYTES // 1000} KB"
    built, source = nbformat.read(lesson.solved, as_version=4), read_source(lesson)
    if [without_run(cell) for cell in built.cells] != [without_run(cell) for cell in source.cells]:
        return f"does not follow from {relative(lesson.source, lesson)}"
    for index, cell in enumerate(built.cells):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        if cell.execution_count is None:
            return f"was not run: {where(lesson, built, index)}"
        may_fail = "raises-exception" in cell.metadata.get("tags", [])
        if not may_fail and any(output.output_type == "error" for output in cell.outputs):
            return f"shows an error: {where(lesson, built, index)}"
    return None


def without_run(cell: Any) -> dict[str, Any]:
    """A cell without what running it added."""
    return {key: value for key, value in cell.items() if key not in ("outputs", "execution_count")}


def orphans(root: Path) -> list[str]:
    """Built notebooks whose source is gone."""
    built = [*(root / "notebooks").glob("[0-9][0-9]_*.ipynb"), *(root / "notebooks" / "solved").glob("*.ipynb")]
    names = lesson_names(root)
    return [f"{path.relative_to(root)} has no source" for path in sorted(built) if path.stem not in names]


def relative(path: Path, lesson: Lesson) -> str:
    return path.relative_to(lesson.root).as_posix()


# ---- the command


def build(lesson: Lesson, *, always: bool) -> list[Path]:
    """Write the files of a lesson that do not follow from its source and return them; `always`: run it in any case."""
    written = []
    learner = to_bytes(learner_notebook(lesson))
    if not lesson.learner.is_file() or lesson.learner.read_bytes() != learner:
        refuse_to_lose_work(lesson)
        lesson.learner.write_bytes(learner)
        written.append(lesson.learner)
    if always or solved_problem(lesson):
        solved = to_bytes(solved_notebook(lesson))
        if len(solved) > MAX_SOLVED_BYTES:
            size = f"{len(solved) / 1000:.0f} KB, at most {MAX_SOLVED_BYTES // 1000}"
            raise LessonError(f"{lesson.name}: the solved notebook has {size}. Largest: {largest(lesson, solved)}")
        lesson.solved.parent.mkdir(exist_ok=True)
        lesson.solved.write_bytes(solved)
        written.append(lesson.solved)
    return written


def refuse_to_lose_work(lesson: Lesson) -> None:
    """A learner's notebook that has been run holds someone's answers: never overwrite it."""
    if not lesson.learner.is_file():
        return
    cells = nbformat.read(lesson.learner, as_version=4).cells
    if any(cell.get("execution_count") or cell.get("outputs") for cell in cells):
        path = relative(lesson.learner, lesson)
        raise LessonError(f"{path} has been run, so it may hold answers. Move it away or `git restore` it, then build.")


def largest(lesson: Lesson, solved: bytes) -> str:
    """The cell with the largest outputs."""
    notebook = nbformat.reads(solved.decode("utf-8"), as_version=4)
    sizes = [len(str(cell.get("outputs", ""))) for cell in notebook.cells]
    return where(lesson, notebook, sizes.index(max(sizes)))


def check(lessons: list[Lesson], root: Path) -> int:
    """Print what does not follow from its source; the exit code."""
    found = orphans(root)
    for lesson in lessons:
        found += [f"{problem}. Run: make build" for problem in problems(lesson)]
    print("\n".join(found) or f"The built notebooks follow from their sources ({len(lessons)} lessons).")
    return 1 if found else 0


def main(argv: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="such as 01_ranks; built even if unchanged")
    parser.add_argument("--all", action="store_true", help="build every lesson, even if unchanged")
    parser.add_argument("--check", action="store_true", help="build nothing, compare")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.lessons) - set(lesson_names(root)))
    if unknown:
        parser.error(f"no source for {', '.join(unknown)}; there are: {', '.join(lesson_names(root)) or 'none'}")
    lessons = [Lesson(name, root) for name in options.lessons or lesson_names(root)]
    try:
        if options.check:
            return check(lessons, root)
        for lesson in lessons:
            written = build(lesson, always=options.all or bool(options.lessons))
            print(f"{lesson.name}: {', '.join(relative(path, lesson) for path in written) or 'unchanged'}")
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
