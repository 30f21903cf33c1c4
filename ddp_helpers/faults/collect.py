"""Look for everything in a log that could be a cause: known messages, other exceptions, ranks that were killed."""

from __future__ import annotations

import re

from .case import DEVICE, Case
from .catalogue import by_id, searches
from .events import Event
from .finding import ORDER, SIGNALS, Finding, died
from .lines import Index

MANY = 400  # messages of one fault that are looked at
NEAR = 15  # lines below an exception that still belong to its message
OUTER = re.compile(r"ChildFailedError|ProcessRaisedException|ProcessExitedException|CalledProcessError|SignalException")
# Python's own words for "the other end of this connection has gone".
GONE = re.compile(r"^(?:ConnectionResetError|BrokenPipeError|ConnectionRefusedError|ConnectionAbortedError|EOFError)$")
AGENT_SAYS = re.compile(r"[EWI]\d{4} \S+ \d+ torch/distributed/elastic/")  # never part of a rank's message
BETWEEN_PROCESSES = re.compile(r"multiprocessing|torch.utils.data|torch.distributed|queue")


def collect(case: Case) -> list[Finding]:
    """All findings of a case, in the order of its log."""
    found = _messages(case)
    found += _exceptions(case, {id(f.event) for f in found if f.fault.kind != "warning"})
    found += _deaths(case, {f.event.rank for f in found if f.order <= ORDER["death"]})
    return sorted(found, key=lambda f: (f.line, not f.fault.where))


def _messages(case: Case) -> list[Finding]:
    """What the catalogue knows."""
    found: list[Finding] = []
    index = Index(case.lines)
    for fault, search in searches():
        for number, match in enumerate(search.finditer(index.text)):
            if number >= MANY:
                break
            line = index.line_of(match.start())
            event = _event_at(case, line, match.start() - index.start_of(line))
            if fault.where and not any(re.search(where, event.trace) for where in fault.where):
                continue
            if fault.also and not any(re.search(also, index.text) for also in fault.also):
                break
            found.append(Finding(fault, event, line))
    return found


def _event_at(case: Case, line: int, column: int) -> Event:
    """The exception whose message this line is part of, or one of its own."""
    here = case.lines[line]
    alone = line in case.record.rank_of_line or AGENT_SAYS.match(here.text)
    inside = [] if alone else case.record.events
    for event in reversed(inside):
        if OUTER.search(event.name) and event.line != line:
            continue
        if not event.line <= line <= event.line + NEAR:
            continue
        named = case.lines[event.line]
        same = named.stream == here.stream and named.rank == here.rank
        between = case.lines[event.line + 1 : line + 1]
        # Only the first line of the message may have the prefix; what the C++ runtime says is a message of its own.
        bare = not any(other.stream or other.text.startswith("terminate called") for other in between)
        if (same or bare) and not any("Traceback" in other.text for other in between):
            return event
    return Event(line, line, case.rank_of(line), "", _message(here.text, column))


def _message(text: str, column: int) -> str:
    """A line from where its message begins: without NCCL's host and process, or the progress bar in front of it."""
    if device := DEVICE.match(text):
        return text[device.end() :].strip()
    return text[column:].strip() if "%|" in text[:column] else text.strip()


def _exceptions(case: Case, named: set[int]) -> list[Finding]:
    """Exceptions that are in no record. `named`: those that the catalogue knows already."""
    found: list[Finding] = []
    for event in case.record.events:
        if id(event) in named or event.ignored or OUTER.search(event.name) or event.name == "SystemExit":
            continue
        echo = GONE.match(event.name) and any(BETWEEN_PROCESSES.search(f.file) for f in event.frames)
        worker = any("utils/data" in f.file.replace("\\", "/") for f in event.frames)
        fault = by_id()[("worker-exited" if worker else "peer-left") if echo else "rank-raises"]
        found.append(Finding(fault, event, event.line, known=bool(echo)))
    return found


def _deaths(case: Case, said: set[int | None]) -> list[Finding]:
    """Ranks that a signal ended: a Run's exit codes stand in no line. `said`: ranks whose cause is known already."""
    found: list[Finding] = []
    for exit in case.record.exits.values():
        if exit.code not in SIGNALS or exit.rank in said or case.record.table:
            continue
        last = max((i for i, line in enumerate(case.lines) if line.rank == exit.rank), default=0)
        fault = by_id()[SIGNALS[exit.code]]
        found.append(Finding(fault, Event(last, last, exit.rank, "", died(fault)), -1))
    return found
