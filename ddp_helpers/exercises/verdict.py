"""What a check finds: a Verdict, and how it looks."""

from __future__ import annotations

import html
from dataclasses import dataclass

from ..view import in_notebook

SIGNS = {"passed": "✔", "wrong": "✘", "unattempted": "○"}
EDGES = {"passed": "#009E73", "wrong": "#D55E00", "unattempted": "#999999"}  # the palette's green, vermillion, grey


@dataclass(frozen=True)
class Verdict:
    """The result of ``check("01.1")``. `text` is all that was shown; `kind` is passed, wrong or unattempted."""

    exercise: str
    kind: str
    text: str

    @property
    def passed(self) -> bool:
        return self.kind == "passed"

    def __str__(self) -> str:
        return f"{SIGNS[self.kind]} {self.exercise}  {self.text}"

    def _ipython_display_(self) -> None:
        """Nothing: `check` has shown it. (nbgrader would also take a displayed value for a grade.)"""

    def show(self) -> None:
        if not in_notebook():
            print(self)
            return
        from IPython.display import display

        style = f"border-left:4px solid {EDGES[self.kind]};padding:.2em .8em;white-space:pre-wrap"
        head = f"<b>{SIGNS[self.kind]} {html.escape(self.exercise)}</b>"
        page = f'<div style="{style}">{head}  {html.escape(self.text)}</div>'
        display({"text/plain": str(self), "text/html": page}, raw=True)


class ExerciseNotPassed(AssertionError):
    """Raised for a grader, which looks for exceptions. `verdict` says what is wrong."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict

    def _render_traceback_(self) -> list[str]:  # IPython shows this in place of a traceback through our own code
        return [f"{type(self).__name__}: {self}"]
