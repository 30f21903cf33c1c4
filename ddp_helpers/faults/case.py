"""All that is known of one failure, before anything is concluded from it; and whose line is whose."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .events import Record
from .explanation import Evidence
from .finding import Finding
from .lines import Line

DEVICE = re.compile(r"(\S+:\d+):\d+ \[(\d+)\] ")  # NCCL: host:pid:thread [device]
COMMUNICATOR = re.compile(r"(\S+:\d+):\d+ \[\d+\].* rank (\d+) nranks (\d+)")
SAYS_RANK = re.compile(
    r"\[Rank (\d+)\]|Rank (\d+)\]|\b(?:on|from) rank (\d+)\b|\btask (\d+): (?:Out Of|Killed|Segm|Bus|Abort)"
)


@dataclass
class Case:
    """The log's lines and events, and what collect() found in them.

    failed    whether the run failed; None when nobody knows, as with a pasted log
    findings  in the order of the log
    first     the rank that torchrun, or another launcher, names first
    """

    lines: list[Line]
    record: Record
    failed: bool | None = None
    findings: list[Finding] = field(default_factory=list)
    first: int | None = field(init=False)

    def __post_init__(self) -> None:
        communicators = [
            found for line in self.lines if "nranks" in line.text and (found := COMMUNICATOR.match(line.text))
        ]
        self._rank_of_process = {found[1]: int(found[2]) for found in communicators}
        self._nccl_ranks = max((int(found[3]) for found in communicators), default=0)
        first = self.record.first()
        row = None if first is None else self.record.exits.get(first)
        self.first = None if row is not None and row.code == -15 else first  # torchrun stopped it: it is no cause

    def rank_of(self, index: int) -> int | None:
        """Whose line it is: by torchrun's table, by NCCL's process, by its own words, by its prefix."""
        line = self.lines[index]
        if index in self.record.rank_of_line:
            return self.record.rank_of_line[index]
        if device := DEVICE.match(line.text):
            return self._rank_of_process.get(device[1], int(device[2]))
        if (says := SAYS_RANK.search(line.text)) and line.rank is None:
            return next(int(number) for number in says.groups() if number)
        return line.rank

    def rank_of_finding(self, finding: Finding) -> int | None:
        """The line may name its rank where its event does not: "what():  [… Rank 1] Watchdog caught …"."""
        return finding.event.rank if finding.event.rank is not None else self.rank_of(finding.line)

    def world(self) -> set[int]:
        """All ranks that the log knows of."""
        seen = {line.rank for line in self.lines if line.rank is not None} | set(self.record.exits)
        return seen | set(range(self._nccl_ranks))

    def quote(self, index: int) -> Evidence:
        line = self.lines[index]
        return Evidence(line.number, self.rank_of(index), line.text)

    def quotes(self, findings: list[Finding], limit: int) -> tuple[Evidence, ...]:
        return tuple(self.quote(finding.line) for finding in findings)[:limit]
