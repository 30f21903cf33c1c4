"""The lines of a log that can matter, without their prefixes: from a terminal, srun, a file of many megabytes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from ..logs import ANSI

SMALL = 1 << 20  # bytes; a smaller log is read whole
# In a larger one only what stands around these is read. Literal searches: 50 MB take about 20 ms each.
NEEDLES = (
    b"Error",
    b"error:",
    b"Exception",
    b" WARN ",
    b"exitcode",
    b"erminate called",
    b"what():",
    b"Fatal Python",
    b"illed",
    b"atchdog",
    b"Assertion ",
    b"slurmstepd",
    b"srun: ",
    b"Interrupt",
    b"death signal",
    b"core dumped",
    b"return code",
    b"Init COMPLETE",
    b"Segmentation fault",
    b"Warning: ",
)
TRACEBACK = b"Traceback (most recent call last)"
FIRST, LAST = 50, 150  # occurrences of each that are read: a word may stand in every line of a healthy log
BEFORE, AFTER, TRACEBACK_AFTER = 10, 10, 300  # lines around them
HEAD, TAIL = 50, 300
MAX_LENGTH = 2_000  # characters of a line

# What stands before a rank's lines: torch's own, ours, Lightning's, torchrun --tee's with and without a template,
# mpirun's, ray's, and the time that containers add.
PREFIX = re.compile(
    r"""\[rank:?\ ?(\d+)\]:?\ ?
    |rank(\d+):\ (?=\s*\S)
    |\[[A-Za-z_]\w*?\d*\|(\d+)\]:\ ?
    |\[[A-Za-z_]+?(\d+)\]:\ ?
    |\[(\d+)\]:\ ?(?=\s*\S)
    |\[(?:\d+,)?(\d+)\]<std(?:out|err)>:\ ?
    |\(\w[\w.]*\ (?:rank=(\d+),?\ )?pid=\d+(?:,\ ip=[\d.]+)?\)\ ?
    |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:\d\d)\ (?:std(?:out|err)\ [FP]\ )?
    |[\w.-]+:\ (?=\[(?:rank|default)\d)""",
    re.VERBOSE,
)
# These look like other text too: they count when many lines begin so. srun --label; a template with the host's name.
LABELS = (re.compile(r"\s*(\d{1,4}): ?(?=\D|$)"), re.compile(r"[A-Za-z][\w-]*:(\d{1,4}): "))
LABELLED = 0.3


class Line(NamedTuple):
    number: int  # in the log, from 1
    rank: int | None
    stream: str  # the prefix: what one process printed has one
    text: str


def read(data: bytes, rank: int | None = None) -> list[Line]:
    """The lines that can matter. `rank`: whose output it is, when that is known."""
    raw = list(_raw_lines(data))
    label = _label([text for _, text in raw])
    return [line for number, text in raw for line in _lines(number, text, rank, label)]


def _raw_lines(data: bytes) -> Iterator[tuple[int, str]]:
    for number, start, end in _spans(data):
        texts = data[start:end].decode("utf-8", "replace").split("\n")
        yield from enumerate(texts, number)


def _spans(data: bytes) -> Iterator[tuple[int, int, int]]:
    """What is read: number of the first line, where it begins, where the last one ends."""
    if len(data) <= SMALL:
        yield 1, 0, len(data)
        return
    wanted = [(0, _forward(data, 0, HEAD)), (_back(data, len(data), TAIL), len(data))]
    wanted += [(_back(data, at, 2), _forward(data, at, TRACEBACK_AFTER)) for at in _occurrences(data, TRACEBACK)]
    for needle in NEEDLES:
        wanted += [(_back(data, at, BEFORE), _forward(data, at, AFTER)) for at in _occurrences(data, needle)]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    number, counted = 1, 0
    for start, end in merged:
        number += data.count(b"\n", counted, start)
        counted = start
        yield number, start, end


def _occurrences(data: bytes, needle: bytes) -> list[int]:
    """The first and the last few; none that one line or its neighbours already brought."""
    found: list[int] = []
    at = data.find(needle)
    while at >= 0 and len(found) < FIRST:
        found.append(at)
        at = data.find(needle, data.find(b"\n", at) + 1 or len(data))
    if at < 0:
        return found
    end = len(data)
    for _ in range(LAST):
        last = data.rfind(needle, at, end)
        if last < 0:
            break
        found.append(last)
        end = max(at, data.rfind(b"\n", 0, last))
    return found


def _back(data: bytes, at: int, lines: int) -> int:
    """Where the line begins that is so many lines above; lines without an end are cut."""
    floor = max(0, at - (lines + 1) * MAX_LENGTH)
    for _ in range(lines + 1):
        at = data.rfind(b"\n", floor, at)
        if at < 0:
            return floor
    return at + 1


def _forward(data: bytes, at: int, lines: int) -> int:
    ceiling = min(len(data), at + (lines + 1) * MAX_LENGTH)
    for _ in range(lines + 1):
        at = data.find(b"\n", at, ceiling) + 1
        if at <= 0:
            return ceiling
    return at - 1


def _label(texts: list[str]) -> re.Pattern[str] | None:
    sample = [text for text in texts if text.strip()][:2_000]
    for label in LABELS:
        if sum(label.match(text) is not None for text in sample) > max(2, LABELLED * len(sample)):
            return label
    return None


def _lines(number: int, raw: str, rank: int | None, label: re.Pattern[str] | None) -> Iterator[Line]:
    if "\x1b" in raw:
        raw = ANSI.sub("", raw)
    # A progress bar's line may end in a message, and a message may begin after a bar's carriage return.
    for part in raw.split("\r") if "\r" in raw else (raw,):
        text, stream, found = part[:MAX_LENGTH], "", rank
        if label and (labelled := label.match(text)):
            found, stream, text = int(labelled[1]), labelled[0].strip(), text[labelled.end() :]
        while match := PREFIX.match(text):
            if match.lastindex:
                found = int(match[match.lastindex])
                stream += match[0].strip()
            text = text[match.end() :]
        yield Line(number, found, stream, text)


class Index:
    """All lines as one text, for one search over all of them, and the way back from a position to its line."""

    def __init__(self, lines: list[Line]) -> None:
        self.text = "\n".join(line.text for line in lines)
        self._starts: list[int] = []
        position = 0
        for line in lines:
            self._starts.append(position)
            position += len(line.text) + 1

    def line_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def start_of(self, line: int) -> int:
        return self._starts[line]
