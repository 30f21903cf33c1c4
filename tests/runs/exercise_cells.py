"""What the tests of all exercises share: a lesson's cells, with the solution or another one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

from build_notebooks import Lesson, read_source

from ddp_helpers import check
from ddp_helpers.exercises import Verdict

SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION\n?", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Cells:
    """The cells of a lesson that write scripts; `scripts` are those of its exercises, by number."""

    lesson: Lesson
    scripts: dict[str, str]

    def solved(self, exercise: str) -> str:
        """What the exercise's cell writes, with the lesson's own solution."""
        return self._text(self.scripts[exercise], read_source(self.lesson))

    def text(self, script: str) -> str:
        """What the cell of that script writes; it need not be an exercise's."""
        return self._text(script, read_source(self.lesson))

    def with_solutions(self, exercise: str, *solutions: str) -> str:
        """The exercise's cell with these in place of its solutions, one after the other."""
        left = iter(solutions)
        text, count = SOLUTION.subn(
            lambda found: indent(dedent(next(left)).lstrip("\n"), found[1]), self.solved(exercise)
        )
        assert count == len(solutions)
        return text

    def edited(self, exercise: str, *changes: tuple[str, str]) -> str:
        """The lesson's own solution with parts of it replaced."""
        text = self.solved(exercise)
        for old, new in changes:
            assert text.count(old) == 1, (old, text.count(old))
            text = text.replace(old, new)
        return text

    def checked(self, exercise: str, text: str) -> Verdict:
        """The verdict on a script with this text."""
        Path(self.scripts[exercise]).write_text(text, encoding="utf-8")
        return check(exercise)

    @staticmethod
    def _text(script: str, notebook: object) -> str:
        for cell in notebook.cells:  # type: ignore[attr-defined]
            first, _, body = cell.source.partition("\n")
            if first.startswith("%%torchrun") and script in first.split():
                return body
        raise AssertionError(f"the lesson has no cell for {script}")
