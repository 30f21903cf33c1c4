"""Run all lessons in one go, and say how long each took and whether it held.

    python tools/run_course.py                     every lesson, with its solutions
    python tools/run_course.py --unsolved          as a learner opens it: no cell may stop, no check may pass
    python tools/run_course.py 03_ddp_from_nothing this lesson

Lessons run in a temporary copy, one after another, each in a fresh kernel. The exit code is 1 if one did not hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from build_notebooks import ROOT, Lesson, LessonError, execute, grading_kind, lesson_names, read_source, scratch_copy


@dataclass(frozen=True)
class Outcome:
    """How one lesson went: seconds with the start of its kernel, checks that passed, what is wrong ("" if nothing)."""

    lesson: str
    seconds: float
    passed: int
    checks: int
    problem: str = ""


def checks_passed(cells: list[Any]) -> dict[str, bool]:
    """Each cell that checks an exercise, and whether its output says that the exercise is right."""
    checks = [cell for cell in cells if grading_kind(cell) == "check"]
    return {cell.source: "✔" in str(cell.get("outputs", "")) for cell in checks}


def run_lesson(lesson: Lesson, unsolved: bool = False) -> Outcome:
    """Run one lesson from top to bottom."""
    notebook = nbformat.read(lesson.learner, as_version=4) if unsolved else read_source(lesson)
    problem, start = "", time.monotonic()
    try:
        with scratch_copy(lesson.root) as scratch:
            execute(lesson, notebook, scratch)
    except LessonError as error:
        problem = str(error)
    seconds = time.monotonic() - start
    checks = checks_passed(notebook.cells)
    passed = sum(checks.values())
    if not problem and unsolved and passed:
        problem = f"{lesson.name}: a check passes with nothing solved: {[c for c, ok in checks.items() if ok]}"
    if not problem and not unsolved and passed < len(checks):
        problem = f"{lesson.name}: a check fails with its solution: {[c for c, ok in checks.items() if not ok]}"
    return Outcome(lesson.name, seconds, passed, len(checks), problem)


def row(lesson: str, seconds: float, passed: int, checks: int, verdict: str) -> str:
    return f"{lesson:<32} {seconds / 60:5.1f} min   checks passed {passed:>2} of {checks:>2}   {verdict}"


def main(argv: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="such as 01_who_am_i; without it, all")
    parser.add_argument("--unsolved", action="store_true", help="run what the learner opens, nothing solved")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.lessons) - set(lesson_names(root)))
    if unknown:
        parser.error(f"no source for {', '.join(unknown)}; there are: {', '.join(lesson_names(root)) or 'none'}")
    outcomes = []
    for name in options.lessons or lesson_names(root):
        outcome = run_lesson(Lesson(name, root), options.unsolved)
        verdict = "did not hold" if outcome.problem else "ok"
        print(row(name, outcome.seconds, outcome.passed, outcome.checks, verdict), flush=True)
        outcomes.append(outcome)
    problems = [outcome.problem for outcome in outcomes if outcome.problem]
    seconds, passed, checks = (sum(getattr(o, part) for o in outcomes) for part in ("seconds", "passed", "checks"))
    print(row(f"{len(outcomes)} lessons", seconds, passed, checks, f"{len(problems)} did not hold"))
    print(*problems, sep="\n\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
