"""check(): is this exercise solved, and if not, what is wrong?"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .attempt import ScriptExercise
from .verdict import ExerciseNotPassed, Verdict

# nbgrader's own mark (nbgrader/converters/autograde.py and validator.py): "autograde" while it grades, "validate"
# behind its Validate button. A grade cell earns nothing when it raises, and all its points when it does not.
GRADER = "NBGRADER_EXECUTION"


class _Unset:
    def __repr__(self) -> str:
        return "(no answer)"


UNSET = _Unset()


def check(exercise: str, answer: object = UNSET, strict: bool | None = None) -> Verdict:
    """Check an exercise, show what was found, and return it.

    >>> check("01.1").passed  # doctest: +SKIP
    True

    Args:
        exercise: its number, as in the lesson.
        answer: for exercises that ask for one. The others are checked by running the script that your cell wrote,
            anew, at several world sizes.
        strict: raise when the exercise is not passed. By default only under nbgrader, so that Run All goes on.

    Raises:
        ExerciseNotPassed: (an AssertionError) only when strict.
        ValueError: there is no such exercise.
        TypeError: an answer where none is asked for.
    """
    entry = _find(exercise)
    verdict = _of_script(exercise, entry, answer) if isinstance(entry, ScriptExercise) else _of(exercise, entry, answer)
    verdict.show()
    if not verdict.passed and (GRADER in os.environ if strict is None else strict):
        raise ExerciseNotPassed(verdict)
    return verdict


def _find(exercise: str) -> ScriptExercise | Callable[[object], str | None]:
    module = f"lesson{exercise.partition('.')[0]}"
    checks: Mapping[str, Any] = {}
    if Path(__file__).with_name(f"{module}.py").is_file():
        checks = importlib.import_module(f".{module}", __package__).CHECKS
    if exercise not in checks:
        there = f"There are {', '.join(checks)}." if checks else "That lesson has none."
        raise ValueError(f"There is no exercise {exercise!r}. {there}")
    entry: ScriptExercise | Callable[[object], str | None] = checks[exercise]
    return entry


def _of_script(exercise: str, entry: ScriptExercise, answer: object) -> Verdict:
    if answer is not UNSET:
        raise TypeError(f'check("{exercise}") runs {entry.script}: it takes no answer.')
    return entry.verdict(exercise)


def _of(exercise: str, entry: Callable[[object], str | None], answer: object) -> Verdict:
    if answer is UNSET or _is_stub(answer):
        text = "Not attempted yet: put your answer in place of the dots, run that cell, then this one."
        return Verdict(exercise, "unattempted", text)
    hint = entry(answer)
    return Verdict(exercise, "wrong", hint) if hint else Verdict(exercise, "passed", "Right.")


def _is_stub(answer: object) -> bool:
    """The learner's notebook has ``...`` where the answer belongs, or within it."""
    if isinstance(answer, str):
        return answer.strip() in ("...", "…")
    if isinstance(answer, dict):
        return any(map(_is_stub, answer.values()))
    return answer is ... or answer is None or (isinstance(answer, list | tuple) and any(map(_is_stub, answer)))
