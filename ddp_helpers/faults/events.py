"""What happened in a log: exceptions with their tracebacks, and torchrun's table of failed ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from .lines import Line

FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S.*))?$')
EXCEPTION = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
SURE_NAME = re.compile(r"(?:Error|Exception|Interrupt|Failure|Exit|Timeout|Fault)$")
NO_NAMES = frozenset(
    {"INFO", "WARNING", "WARN", "ERROR", "DEBUG", "CRITICAL", "NOTE", "Traceback", "Exception ignored"}
)
CRASH = re.compile(r"terminate called after throwing an instance of '(?P<name>[^']+)'")
TABLE_RANK = re.compile(r"\s+rank\s*: (\d+) \(local_rank: (\d+)\)")
TABLE_CODE = re.compile(r"\s+exitcode\s*: (-?\d+) \(pid: (\d+)\)")
TABLE_TIME = re.compile(r"\s+time\s*: (\S+)")
TABLE_END = re.compile(r"[=*-]{10,}\s*$")
AGENT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error")
LAUNCH = re.compile(r"--local[-_]rank=(\d+).*(?:(?:exit status|return code =) (-?\d+)|died with <Signals\.\w+: (\d+)>)")
LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python3|<frozen |[/\\]torch[/\\]|importlib|^<string>$")
AGENT_FILES = re.compile(r"torch/distributed/(?:run|launch|launcher/api|elastic/agent|elastic/rendezvous)")
CHAINED = re.compile(r"The above exception was the direct cause|During handling of the above exception")


class Frame(NamedTuple):
    file: str
    line: int
    function: str


@dataclass
class Event:
    """One error. `line` is the index of the line that names it, `start` where its traceback begins."""

    line: int
    start: int
    rank: int | None
    name: str  # the exception's type; "" for a line of another kind
    message: str
    frames: list[Frame] = field(default_factory=list)
    chained: bool = False  # it came out of the event before
    original: bool = False  # the error in a DataLoader's worker, told again by the rank
    ignored: bool = False  # "Exception ignored in": Python went on

    @property
    def in_agent(self) -> bool:
        """Raised in torchrun itself, not in a rank."""
        return any(AGENT_FILES.search(frame.file.replace("\\", "/")) for frame in self.frames)

    @property
    def place(self) -> Frame | None:
        """The innermost line of the user's own code."""
        own = [frame for frame in self.frames if not LIBRARY.search(frame.file)]
        return own[-1] if own else None

    @property
    def trace(self) -> str:
        """The functions on the way, one a line, for `Fault.where`."""
        return "".join(f"in {frame.function}\n" for frame in self.frames)

    @property
    def collective(self) -> str:
        """The collective that the rank was in, as far as the traceback shows it."""
        inside = [frame.function for frame in self.frames if "distributed_c10d" in frame.file]
        return inside[-1] if inside else ""

    def __str__(self) -> str:
        short = self.name.rpartition(".")[2]
        return f"{short}: {self.message}" if self.message and short else short or self.message


@dataclass
class Exit:
    """A row of torchrun's table, or of another launcher's report."""

    rank: int
    code: int = 1
    time: str = ""
    root: bool = False
    pid: str = ""


@dataclass
class Record:
    """All that a log says, before anybody is blamed."""

    events: list[Event] = field(default_factory=list)
    exits: dict[int, Exit] = field(default_factory=dict)
    table: bool = False
    agent: Exit | None = None  # "failed (exitcode: 1) local_rank: 2": local, and therefore weaker than the table
    rank_of_line: dict[int, int] = field(default_factory=dict)  # lines of the table

    def first(self) -> int | None:
        """The rank that torchrun believes failed first: a hint."""
        roots = sorted((e for e in self.exits.values() if e.root), key=lambda e: e.time)
        if roots:
            return roots[0].rank
        return self.agent.rank if self.agent and not self.table else None


def read_events(lines: list[Line]) -> Record:
    """Follow each stream by itself: ranks print at the same time."""
    record = Record()
    streams: dict[tuple[str, int | None], list[int]] = {}
    for index, line in enumerate(lines):
        streams.setdefault((line.stream, line.rank), []).append(index)
    for indices in streams.values():
        _Stream(lines, indices, record).read()
    record.events.sort(key=lambda event: event.line)
    return record


class _Stream:
    def __init__(self, lines: list[Line], indices: list[int], record: Record) -> None:
        self.lines, self.indices, self.record = lines, indices, record
        self.open: list[Event] = []  # tracebacks without their last line yet
        self.spawned: int | None = None
        self.row: Exit | None = None
        self.time, self.root = "", False
        self.chained = self.ignored = False
        self.in_body = False  # the line before belongs to a traceback

    def read(self) -> None:
        for place, index in enumerate(self.indices):
            text = self.lines[index].text
            if not text.strip():
                continue
            if "Traceback (most recent call last)" in text:
                self.open.append(self._event(index, chained=self.chained, ignored=self.ignored))
                self.open[-1].original = text.startswith("Original")
                self.chained, self.ignored, self.in_body = False, False, True
            elif frame := FRAME.match(text):
                if not self.open:  # the log begins in the middle of a traceback
                    self.open.append(self._event(index))
                self.open[-1].frames.append(Frame(frame["file"], int(frame["line"]), frame["function"] or ""))
                self.in_body = True
            elif text[0].isspace() and not self._recorded(place, index, text.strip()):
                self._table(index, text)
            elif not text[0].isspace():
                self._plain(place, index, text)

    def _event(self, index: int, chained: bool = False, ignored: bool = False) -> Event:
        rank = self.lines[index].rank
        if self.row is not None and rank is None:
            rank = self.row.rank
        if self.spawned is not None:
            rank = self.spawned
        return Event(index, index, rank, "", "", chained=chained, ignored=ignored)

    def _plain(self, place: int, index: int, text: str) -> None:
        if crash := CRASH.match(text):
            self.record.events.append(Event(index, index, self.lines[index].rank, crash["name"], self._what(place)))
        elif CHAINED.match(text):
            self.chained = True
        elif text.startswith("Exception ignored"):
            self.ignored = True
        elif spawned := SPAWNED.match(text):
            self.spawned = int(spawned[1])
        elif (match := EXCEPTION.match(text)) and self._is_exception(match["name"]):
            self._close(place, index, match["name"], match["message"] or "")
        else:
            self._launcher(text)
            self.in_body = self.in_body and bool(self.open) and TABLE_END.match(text) is None

    def _is_exception(self, name: str) -> bool:
        last = name.rpartition(".")[2]
        if name in NO_NAMES or name.endswith("Warning") or name.startswith("nccl"):
            return False
        if SURE_NAME.search(name):
            return True
        return bool(self.open and self.open[-1].frames and self.in_body and (last[:1].isupper() or "." in name))

    def _close(self, place: int, index: int, name: str, message: str) -> None:
        event = self.open.pop() if self.open else self._event(index, chained=self.chained)
        following = (self.lines[i].text.strip() for i in self.indices[place + 1 : place + 4])
        event.line, event.name = index, name
        event.message = message.strip() or next((text for text in following if text), "")
        if not self.open:
            self.spawned = None
        self.chained = self.in_body = False
        self.record.events.append(event)

    def _what(self, place: int) -> str:
        for i in self.indices[place + 1 : place + 4]:
            if "what():" in self.lines[i].text:
                return self.lines[i].text.partition("what():")[2].strip()
        return ""

    # -- torchrun and other launchers

    def _recorded(self, place: int, index: int, text: str) -> bool:
        """The last line of a traceback inside the table (@record puts it there, indented)."""
        match = EXCEPTION.match(text)
        if not (self.row and self.open and match and SURE_NAME.search(match["name"])):
            return False
        self._close(place, index, match["name"], match["message"] or "")
        return True

    def _table(self, index: int, text: str) -> None:
        if found := TABLE_TIME.match(text):
            self.time = found[1]
        elif found := TABLE_RANK.match(text):
            self.row = self.record.exits.setdefault(int(found[1]), Exit(int(found[1])))
            self.row.time, self.row.root = self.time, self.row.root or self.root
            self.record.table, self.root = True, False
        elif (found := TABLE_CODE.match(text)) and self.row:
            self.row.code, self.row.pid = int(found[1]), found[2]
        if self.row:
            self.record.rank_of_line[index] = self.row.rank

    def _launcher(self, text: str) -> None:
        if TABLE_END.match(text):
            self.row = None
        elif text.startswith("Root Cause"):
            self.root = True
        elif found := AGENT.search(text):
            self.record.agent = self.record.agent or Exit(int(found[2]), int(found[1]), pid=found[3])
        elif found := LAUNCH.search(text):
            code = int(found[2]) if found[2] else -int(found[3])
            self.record.exits.setdefault(int(found[1]), Exit(int(found[1]), code, root=True))
