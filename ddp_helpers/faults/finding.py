"""Something that was found in a log, and how much it is worth as a cause."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

from .events import Event
from .fault import Fault

# "cause" and a user's exception are believed first. A stop from outside counts like a general message: by its place.
ORDER = {"cause": 0, "death": 1, "general": 2, "stop": 2, "wait": 3, "end": 4, "warning": 5, "victim": 6}
SIGNALS = {-9: "exit-code-9", -11: "exit-code-11", -7: "exit-code-7", -6: "exit-code-6"}
SOURCE_LINE = re.compile(
    r"^[EWIF]\d{4} \S+ \d+ \S+:\d+\] |\[[EWIF]\d* [^\]]*\] ?|\[(?:enforce fail at )?(?:/|\.\./)[^\]\s]*\] ?"
)


@dataclass
class Finding:
    """A fault's message, or a user's exception, somewhere in the log."""

    fault: Fault
    event: Event
    line: int  # index of the line that says so; -1 when no line does
    known: bool = True  # false: an exception that is in no record
    order: int = field(init=False)

    def __post_init__(self) -> None:
        self.order = ORDER[self.fault.kind] if self.known else 0


def one_a_rank(findings: list[Finding]) -> list[Finding]:
    """The first of each rank, of those that stand in a line."""
    first: dict[int | None, Finding] = {}
    for finding in findings:
        if finding.line >= 0:
            first.setdefault(finding.event.rank, finding)
    return list(first.values())


# -- in words


def died(fault: Fault) -> str:
    code = next((code for code, name in SIGNALS.items() if name == fault.id), 0)
    return f"the process was ended by signal {-code} ({signal.Signals(-code).name})" if code else ""


def place(event: Event) -> str:
    frame = event.place
    return f"line {frame.line} of {frame.file}, in {frame.function}" if frame else ""


def short(event: Event, limit: int = 200) -> str:
    """The first line of an error, without the place in torch's source that C++ puts before it."""
    text = str(event)
    text = SOURCE_LINE.sub("", text.splitlines()[0]) if text else "no message"
    return text if len(text) <= limit else text[:limit] + " …"
