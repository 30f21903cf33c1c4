"""Follow the log files of a run while the ranks write them: whole lines, live progress bars, metrics."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

CHUNK = 1 << 20
MAX_LINE = 2_000  # characters of one line that are kept for display
MAX_METRICS = 100_000
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
METRIC = re.compile(
    r"(?:^|[\s,;])([A-Za-z_][\w/%.@-]*)=([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf))(?=$|[\s,;])"
)


class Line(NamedTuple):
    rank: int
    stream: str  # "stdout" or "stderr"
    text: str


@dataclass
class _Stream:
    rank: int
    name: str
    file: BinaryIO
    # Bytes that are no UTF-8 must not stop anything, and a character may be cut in two by a read.
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    partial: str = ""

    def read(self) -> tuple[list[str], bool]:
        """Whole lines of the next chunk, and whether there may be more."""
        data = self.file.read(CHUNK)
        *lines, self.partial = (self.partial + self.decoder.decode(data)).split("\n")
        if len(self.partial) > CHUNK:  # a rank that never ends its line
            self.partial = self.partial[-CHUNK:]
        return [shown(line) for line in lines], len(data) == CHUNK


class Follower:
    """Reads what is new in the stdout.log and stderr.log of all ranks below a run's folder."""

    def __init__(self, log_dir: Path, nproc: int) -> None:
        self._log_dir = log_dir
        self._nproc = nproc
        self._streams: dict[Path, _Stream] = {}
        self.metrics: list[dict[str, float]] = []

    @property
    def has_ranks(self) -> bool:
        """Whether a rank has been started, as far as the last poll saw."""
        return bool(self._streams)

    def poll(self) -> list[Line]:
        """New whole lines since the last call, at most one chunk a file."""
        self._find_new_files()
        return [line for stream in self._by_rank() for line in self._take(stream)[0]]

    def drain(self) -> Iterator[list[Line]]:
        """All that is left, in batches, once no rank writes any more; an unfinished last line counts as a line."""
        self._find_new_files()
        for stream in self._by_rank():
            more = True
            while more:
                lines, more = self._take(stream)
                yield lines
            if stream.partial:
                yield [Line(stream.rank, stream.name, shown(stream.partial))]
            stream.file.close()

    def live(self) -> list[Line]:
        """The unfinished line of each stream: progress bars, and prompts without a newline."""
        streams = [stream for stream in self._by_rank() if shown(stream.partial).strip()]
        return [Line(stream.rank, stream.name, shown(stream.partial)) for stream in streams]

    def _by_rank(self) -> list[_Stream]:
        return sorted(self._streams.values(), key=lambda stream: stream.rank)

    def _take(self, stream: _Stream) -> tuple[list[Line], bool]:
        texts, more = stream.read()
        if len(self.metrics) < MAX_METRICS:
            self.metrics += [found for text in texts if "=" in text and (found := metrics_of(stream.rank, text))]
        return [Line(stream.rank, stream.name, text) for text in texts], more

    def _find_new_files(self) -> None:
        for path in self._log_dir.glob("node*/run_*/attempt_*/*/std*.log"):
            if path not in self._streams:
                node = int(path.relative_to(self._log_dir).parts[0].removeprefix("node"))
                rank = node * self._nproc + int(path.parent.name)
                self._streams[path] = _Stream(rank, path.stem, path.open("rb"))


def shown(line: str) -> str:
    """A line as a terminal would leave it: what follows the last carriage return, without colours, not endless."""
    if "\x1b" in line:
        line = ANSI.sub("", line)
    if "\r" in line:
        line = line.rstrip("\r").rpartition("\r")[2]
    if len(line) > MAX_LINE:
        line = f"{line[:MAX_LINE]}… ({len(line) - MAX_LINE:,} more characters)"
    return line


def metrics_of(rank: int, line: str) -> dict[str, float] | None:
    """The ``key=value`` words of a line, as numbers.

    >>> metrics_of(0, "epoch=1 loss=0.52 images/s=1830 lr=1e-3 note=x")
    {'rank': 0, 'epoch': 1, 'loss': 0.52, 'images/s': 1830, 'lr': 0.001}
    """
    found = METRIC.findall(line)
    if not found:
        return None
    return {"rank": rank, **{key: int(value) if value.lstrip("+-").isdigit() else float(value) for key, value in found}}
