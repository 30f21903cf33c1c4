"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("ok", "note", "warning", "problem")  # from harmless to "must be mended"


@dataclass(frozen=True)
class Finding:
    """`Finding("shared memory", "problem", found="…", matters="…", do="…")`.

    name     what was looked at; the report's first column
    level    ok: fine. note: worth knowing. warning: it will run, but not as you wish. problem: it must be mended.
    found    the fact
    matters  whether it matters, and why
    do       what to do; empty when there is nothing to do
    minor    True for a check that is shown only when it found something; it is in .findings and in JSON either way
    """

    name: str
    level: str
    found: str
    matters: str
    do: str = ""
    minor: bool = False

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"a finding's level is one of {', '.join(LEVELS)}; got {self.level!r}")

    @property
    def shown(self) -> bool:
        return not (self.minor and self.level == "ok")

    @property
    def severity(self) -> int:
        return LEVELS.index(self.level)
