"""What in a log is the cause: an exception that is no echo before the death of a rank, and so on."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

from .catalogue import by_id, searches
from .events import Event, Record
from .explanation import Evidence, Explanation, ranks
from .fault import Fault
from .lines import Index, Line

MANY = 400  # messages of one fault that are looked at
NEAR = 15  # lines below an exception that still belong to its message
# "cause" and a user's exception are believed first. A stop from outside counts like a general message: by its place.
ORDER = {"cause": 0, "death": 1, "general": 2, "stop": 2, "wait": 3, "end": 4, "warning": 5, "victim": 6}
OUTER = re.compile(r"ChildFailedError|ProcessRaisedException|ProcessExitedException|CalledProcessError|SignalException")
# Python's own words for "the other end of this connection has gone".
GONE = re.compile(r"^(?:ConnectionResetError|BrokenPipeError|ConnectionRefusedError|ConnectionAbortedError|EOFError)$")
BETWEEN_PROCESSES = re.compile(r"multiprocessing|torch.utils.data|torch.distributed|queue")
DEVICE = re.compile(r"(\S+:\d+):\d+ \[(\d+)\] ")  # NCCL: host:pid:thread [device]
COMMUNICATOR = re.compile(r"(\S+:\d+):\d+ \[\d+\].* rank (\d+) nranks (\d+)")
SAYS_RANK = re.compile(
    r"\[Rank (\d+)\]|Rank (\d+)\]|\b(?:on|from) rank (\d+)\b|\btask (\d+): (?:Out Of|Killed|Segm|Bus|Abort)"
)
WORK = re.compile(r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?")
EVALUATES = re.compile("in _sync_(?:module_)?buffers")
SOURCE_LINE = re.compile(
    r"^[EWIF]\d{4} \S+ \d+ \S+:\d+\] |\[[EWIF]\d* [^\]]*\] ?|\[(?:enforce fail at )?(?:/|\.\./)[^\]\s]*\] ?"
)
NAMED = ("abort-at-exit", "interrupted")  # the end of a run, and all there is to say
# Waits that another message of the same log explains more closely.
UNSPECIFIC = ("barrier-skipped", "no-rank-zero", "nccl-watchdog-timeout", "nccl-heartbeat")
SIGNALS = {-9: "exit-code-9", -11: "exit-code-11", -7: "exit-code-7", -6: "exit-code-6"}


@dataclass
class Finding:
    """A fault's message, or a user's exception, somewhere in the log."""

    fault: Fault
    event: Event
    line: int  # index of the line that says so
    known: bool = True  # false: an exception that is in no record
    order: int = field(init=False)

    def __post_init__(self) -> None:
        self.order = ORDER[self.fault.kind] if self.known else 0


class Judge:
    def __init__(self, lines: list[Line], record: Record, failed: bool | None = None) -> None:
        self.lines, self.record, self.failed = lines, record, failed
        self.index = Index(lines)
        self.devices = self._communicators()
        self.findings = sorted(self._findings(), key=lambda f: (f.line, not f.fault.where))
        first = record.first()
        self.first = (
            first if first is None or record.exits.get(first) is None or record.exits[first].code != -15 else None
        )

    # -- collecting

    def _findings(self) -> list[Finding]:
        found = self._messages()
        named = {id(f.event) for f in found if f.fault.kind != "warning"}
        for event in self.record.events:
            if id(event) in named or event.ignored or OUTER.search(event.name) or event.name == "SystemExit":
                continue
            echo = GONE.match(event.name) and any(BETWEEN_PROCESSES.search(f.file) for f in event.frames)
            worker = any("utils/data" in f.file.replace("\\", "/") for f in event.frames)
            fault = by_id()[("worker-exited" if worker else "peer-left") if echo else "rank-raises"]
            found.append(Finding(fault, event, event.line, known=bool(echo)))
        said = {f.event.rank for f in found if f.order <= ORDER["death"]}
        for exit in self.record.exits.values():  # a Run's exit codes stand in no line
            if exit.code in SIGNALS and exit.rank not in said and not self.record.table:
                found.append(self._died(exit.rank, exit.code))
        return found

    def _died(self, rank: int, code: int) -> Finding:
        last = max((i for i, line in enumerate(self.lines) if line.rank == rank), default=0)
        fault = by_id()[SIGNALS[code]]
        return Finding(fault, Event(last, last, rank, "", _died(fault)), -1)

    def _messages(self) -> list[Finding]:
        found: list[Finding] = []
        for fault, search in searches():
            for number, match in enumerate(search.finditer(self.index.text)):
                if number >= MANY:
                    break
                line = self.index.line_of(match.start())
                event = self._event_at(line, match.start() - self.index.start_of(line))
                if fault.where and not any(re.search(where, event.trace) for where in fault.where):
                    continue
                if fault.also and not any(re.search(also, self.index.text) for also in fault.also):
                    break
                found.append(Finding(fault, event, line))
        return found

    def _event_at(self, line: int, column: int) -> Event:
        """The exception whose message this line is part of, or one of its own."""
        here = self.lines[line]
        inside = [] if line in self.record.rank_of_line else self.record.events
        for event in reversed(inside):
            if OUTER.search(event.name) and event.line != line:
                continue
            if not event.line <= line <= event.line + NEAR:
                continue
            same = self.lines[event.line].stream == here.stream and self.lines[event.line].rank == here.rank
            between = self.lines[event.line + 1 : line + 1]
            # Only the first line of the message may have the prefix; what the C++ runtime says is a message of its own.
            bare = not any(other.stream or other.text.startswith("terminate called") for other in between)
            if (same or bare) and not any("Traceback" in other.text for other in between):
                return event
        return Event(line, line, self._rank_of(line), "", _message(here.text, column))

    def _communicators(self) -> dict[str, int]:
        found = (COMMUNICATOR.match(line.text) for line in self.lines if "nranks" in line.text)
        return {match[1]: int(match[2]) for match in found if match}

    def _rank_of(self, index: int) -> int | None:
        line = self.lines[index]
        if index in self.record.rank_of_line:
            return self.record.rank_of_line[index]
        if device := DEVICE.match(line.text):
            return self.devices.get(device[1], int(device[2]))
        if (says := SAYS_RANK.search(line.text)) and line.rank is None:
            return next(int(number) for number in says.groups() if number)
        return line.rank

    # -- judging

    def verdict(self) -> Explanation:
        found = [f for f in self.findings if f.order <= ORDER["end"]]
        if self.failed is False:
            return self._nothing()
        if not found:
            return self._unknown() if self._failed() else self._nothing()
        best = min(found, key=self._key)
        if best.order == ORDER["wait"]:
            return self._waited([f for f in found if f.order == ORDER["wait"]])
        return self._caused(best)

    def _key(self, finding: Finding) -> tuple[int, bool, int]:
        rank = finding.event.rank
        other = rank is not None and self.first is not None and rank != self.first
        return finding.order, other, finding.line

    def _failed(self) -> bool:
        table = self.record.table or self.record.agent is not None
        return bool(self.failed) or table or any(f.fault.kind == "victim" for f in self.findings)

    def _caused(self, best: Finding) -> Explanation:
        best = self._better_in_chain(best)
        event = self._exception_of(best)
        rank = best.event.rank
        outside = best.fault.kind == "stop" or event.in_agent
        if rank is None and not outside:
            told = (f.event.rank for f in self.findings if f.fault is best.fault and best.known)
            rank = next((r for r in told if r is not None), self.first)
        alike = {f.event.rank for f in self.findings if f.fault is best.fault and f.event.name == best.event.name}
        if not best.known:
            alike = {f.event.rank for f in self.findings if not f.known and f.event.message == best.event.message}
        same = (
            tuple(sorted(r for r in alike | self._nameless(best) if r is not None and r != rank))
            if rank is not None
            else ()
        )
        who = "torchrun itself" if event.in_agent else "the job" if rank is None else f"rank {rank}"
        named = not best.known or best.fault.kind not in ("general", "end") or best.fault.id in NAMED
        verb = "failed first" if rank is not None and self._victims(rank, same) else "failed"
        verb = "was stopped" if best.fault.kind == "stop" else verb
        return Explanation(
            known=named,
            headline=f"{who} {verb}: {_died(best.fault) or _short(str(event))}",
            root_rank=None if outside else rank,
            exception=str(event) if event.name else "",
            place=_place(event),
            evidence=self._evidence(best, event),
            same=same,
            victims=self._victims(rank, same),
            faults=self._faults(best),
            missing="" if named else f"The log says what kind of failure it was, not its cause. {best.fault.sure}",
        )

    def _nameless(self, best: Finding) -> set[int | None]:
        """Ranks of the table for the tracebacks without a rank that say the same."""
        if best.event.rank is not None or self.first is None:
            return set()
        alike = {f.event.line for f in self.findings if f.event.rank is None and str(f.event) == str(best.event)}
        code = self.record.exits[self.first].code if self.first in self.record.exits else 1
        others = [e.rank for e in self.record.exits.values() if e.code == code and e.rank != self.first]
        return set(others[: len(alike) - 1])

    def _better_in_chain(self, best: Finding) -> Finding:
        """Of exceptions that came out of one another, the one that the catalogue knows; else the last."""
        if best.known:
            return best
        events = self.record.events
        at = events.index(best.event)
        while at + 1 < len(events) and events[at + 1].chained and events[at + 1].rank == best.event.rank:
            at += 1
            best = next((f for f in self.findings if f.event is events[at]), best)
        return best

    def _exception_of(self, finding: Finding) -> Event:
        """The exception to show: that of the message, or the one that the same process raised right after it."""
        if finding.fault.id == "worker-raises":  # its true exception follows, under "Original Traceback"
            inner = (e for e in self.record.events if finding.line < e.start <= finding.line + NEAR)
            return next((e for e in inner if e.rank == finding.event.rank and e.original), finding.event)
        if finding.event.name or finding.fault.kind == "death":
            return finding.event
        same = [e for e in self.record.events if e.start <= finding.line <= e.line + NEAR and not OUTER.search(e.name)]
        return next((e for e in same if e.rank == finding.event.rank and e.name), finding.event)

    def _faults(self, best: Finding) -> tuple[Fault, ...]:
        near = [f for f in self.findings if f.event is best.event and f.order == best.order and f.known]
        near.sort(key=lambda f: (f is not best, -len(f.fault.where) - len(f.fault.also)))
        others = [f for f in self.findings if f.order == 0 and f.known and best.order == 0]
        found = [best.fault] if not near else []
        found += [f.fault for f in sorted(near, key=lambda f: -len(f.fault.where) - len(f.fault.also))]
        found += [f.fault for f in others]
        return tuple(dict.fromkeys(found))[:3]

    def _victims(self, rank: int | None, same: tuple[int, ...]) -> tuple[int, ...]:
        fell = {f.event.rank for f in self.findings if f.order > ORDER["death"] and f.fault.kind != "warning"}
        fell |= {e.rank for e in self.record.exits.values() if e.code != 0}
        own = {f.event.rank for f in self.findings if f.order <= ORDER["death"]}
        return tuple(sorted(r for r in fell - own if r is not None and r != rank and r not in same))

    def _evidence(self, best: Finding, event: Event) -> tuple[Evidence, ...]:
        wanted = [] if best.line < 0 else [best.line]
        if event.name and event.line != best.line:
            wanted.append(event.line)
        return tuple(self._quote(index) for index in wanted)

    def _quote(self, index: int) -> Evidence:
        line = self.lines[index]
        return Evidence(line.number, self._rank_of(index), line.text)

    # -- ranks that waited

    def _waited(self, waits: list[Finding]) -> Explanation:
        best = min(waits, key=lambda f: (not f.fault.where, f.fault.id in UNSPECIFIC, f.line))
        alone = [f for f in self.findings if f.fault.id == "peer-left" and EVALUATES.search(f.event.trace)]
        if alone:  # the others lost patience first, so that this rank says only that they have gone
            best = Finding(by_id()["eval-on-rank-zero"], alone[0].event, alone[0].line)
        waiting = sorted({rank for f in waits if (rank := self._rank_of_finding(f)) is not None})
        fault = self._mismatch(waits, best.fault) or best.fault
        if fault is not best.fault and fault.id != "nccl-watchdog-timeout":
            root = None  # no rank is missing: they are not together, or they cannot reach each other
        else:
            root = best.event.rank if fault.id == "eval-on-rank-zero" else self._absent(waiting)
        who = f"{ranks(tuple(waiting)).lower()} waited" if waiting else "the ranks waited"
        event = best.event
        who = "torchrun waited" if event.in_agent else who
        came = f"; rank {root} did not come" if root is not None and root not in waiting else ""
        general = [f.fault for f in waits if f.fault is not fault and not f.fault.where]
        return Explanation(
            known=True,
            headline=f"{who} in vain{came}: {_short(str(event))}",
            root_rank=root,
            exception=str(event) if event.name else "",
            place=_place(event),
            evidence=tuple(self._quote(f.line) for f in _one_a_rank(waits))[:4],
            victims=() if root is None else tuple(r for r in waiting if r != root),
            faults=tuple(dict.fromkeys([fault, *general]))[:2],
        )

    def _rank_of_finding(self, finding: Finding) -> int | None:
        """The line may name its rank where its event does not: "what():  [… Rank 1] Watchdog caught …"."""
        return finding.event.rank if finding.event.rank is not None else self._rank_of(finding.line)

    def _absent(self, waiting: list[int]) -> int | None:
        """The only rank that did not wait; with NCCL's numbers, the only one that is behind."""
        work = {
            self._rank_of_finding(f): int(m[1]) for f in self.findings if (m := WORK.search(self.lines[f.line].text))
        }
        behind = [rank for rank, number in work.items() if number == min(work.values())]
        if len(set(work.values())) > 1 and len(behind) == 1:
            return behind[0]
        others = self._world() - set(waiting)
        return others.pop() if len(others) == 1 and waiting else None

    def _world(self) -> set[int]:
        sizes = [
            int(found[3]) for line in self.lines if "nranks" in line.text and (found := COMMUNICATOR.match(line.text))
        ]
        seen = {line.rank for line in self.lines if line.rank is not None} | set(self.record.exits)
        return seen | set(range(max(sizes, default=0)))

    def _mismatch(self, waits: list[Finding], said: Fault) -> Fault | None:
        """Ranks that wait in different collectives; or all in the very first one, which the GPUs do not end."""
        work = {self._rank_of_finding(f): m.groups() for f in waits if (m := WORK.search(self.lines[f.line].text))}
        if len(work) > 1 and len({number for number, _, _ in work.values()}) == 1:
            if len(set(work.values())) > 1:
                return by_id()["nccl-ranks-differ"]
            world = self._world()
            if int(next(iter(work.values()))[0]) <= 2 and set(work) >= world:
                return by_id()["nccl-p2p-hang"]
        if said.id not in ("collective-on-one-rank", "barrier-skipped", "send-without-recv"):
            return None
        # Whoever times out first closes its connections, and the others say so in their own collective.
        lost = [f for f in self.findings if f.fault.id == "peer-left"]
        calls = {f.event.rank: f.event.collective for f in [*lost, *waits] if f.event.collective}
        return by_id()["collective-order"] if len(set(calls.values())) > 1 else None

    # -- no cause in the log

    def _unknown(self) -> Explanation:
        victims = [f for f in self.findings if f.fault.kind == "victim"]
        told = [f for f in victims if f.fault.id not in ("torchrun-table", "exit-code-15")]
        quiet = self._left_early(told)
        if quiet is not None:
            return quiet
        rank = self.first
        who = "the first rank that failed" if rank is None else f"rank {rank}"
        lost = "What is here are only consequences. " if told else ""
        silent = self._world() - {f.event.rank for f in told}
        if told and len(silent) == 1:
            lost += f"Rank {silent.pop()} shows no error here: begin with its output. "
        missing = (
            f"The log does not hold the cause. {lost}Look for the first traceback of {who}, above what you have here, "
            "or in that rank's own log (torchrun --log-dir DIR --redirects 3)."
        )
        return Explanation(
            known=False,
            headline=f"the cause is not in this log{'' if rank is None else f'; torchrun names rank {rank} first'}",
            root_rank=rank if not told else None,
            evidence=tuple(self._quote(f.line) for f in _one_a_rank(told or victims))[:3],
            victims=tuple(sorted({f.event.rank for f in told if f.event.rank is not None})),
            missing=missing,
        )

    def _left_early(self, told: list[Finding]) -> Explanation | None:
        """Only "the other has gone", and the other has no error: it left early, if nothing is missing here."""
        fell = {f.event.rank for f in told if f.fault.id == "peer-left" and f.event.rank is not None}
        if not fell:
            return None
        fine = sorted(
            r for r in self._world() - fell if self.record.exits.get(r) is None or not self.record.exits[r].code
        )
        certain = self.failed is not None and bool(fine)
        who = f"rank {fine[0]} left early" if len(fine) == 1 else "a rank left early"
        missing = (
            "" if certain else "The log holds no error of the rank that left: its log is missing here, or it had none."
        )
        return Explanation(
            known=certain,
            headline=f"{who}: {ranks(tuple(sorted(fell))).lower()} lost it, and no other rank shows an error",
            root_rank=fine[0] if len(fine) == 1 else None,
            evidence=tuple(self._quote(f.line) for f in _one_a_rank(told))[:3],
            victims=tuple(sorted(fell)),
            faults=(by_id()["one-rank-leaves-early"],),
            missing=missing,
        )

    def _nothing(self) -> Explanation:
        warned = [f for f in self.findings if f.fault.kind == "warning"]
        return Explanation(
            known=False,
            headline="this log shows no failure" + (", but a warning" if warned else ""),
            evidence=tuple(self._quote(f.line) for f in _one_a_rank(warned))[:2],
            faults=tuple(dict.fromkeys(f.fault for f in warned))[:2],
            missing=""
            if warned
            else "If the job stopped all the same: is this the end of the log, and all ranks' output?",
        )


def _died(fault: Fault) -> str:
    code = next((code for code, name in SIGNALS.items() if name == fault.id), 0)
    return f"the process was ended by signal {-code} ({signal.Signals(-code).name})" if code else ""


def _message(text: str, column: int) -> str:
    """A line from where its message begins: without NCCL's host and process, or the progress bar in front of it."""
    if device := DEVICE.match(text):
        return text[device.end() :].strip()
    return text[column:].strip() if "%|" in text[:column] else text.strip()


def _one_a_rank(findings: list[Finding]) -> list[Finding]:
    first: dict[int | None, Finding] = {}
    for finding in findings:
        if finding.line >= 0:
            first.setdefault(finding.event.rank, finding)
    return list(first.values())


def _place(event: Event) -> str:
    frame = event.place
    return f"line {frame.line} of {frame.file}, in {frame.function}" if frame else ""


def _short(text: str, limit: int = 200) -> str:
    text = SOURCE_LINE.sub("", text.splitlines()[0]) if text else "no message"
    return text if len(text) <= limit else text[:limit] + " …"
