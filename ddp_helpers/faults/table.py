"""table(): the catalogue to read, all of it or the rows that a word picks."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from . import table_html
from .catalogue import TOPICS, catalogue, searches
from .fault import Fault

WIDTH = 100
FEW = 12  # faults that are written out without being asked


@dataclass(frozen=True, repr=False)
class Table:
    """What `table()` found. In a notebook it shows itself as a table; `print` writes it as text.

    topics  topic → its faults; topics without one are left out
    asked   what was asked for, to say so when nothing was found
    opened  whether the topics are shown unfolded
    """

    topics: dict[str, tuple[Fault, ...]]
    asked: str = ""
    opened: bool = False

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(fault for faults in self.topics.values() for fault in faults)

    def title(self) -> str:
        number = len(self.faults)
        if not number:
            return (
                f"No known fault matches {self.asked}. Try fewer or other words, such as one word of the message; "
                "explain(run), or explain() with the text of a log, looks for all of them at once."
            )
        what = f"{number} known fault{'s' * (number > 1)}"
        if self.asked:
            what += f" {'match' if number > 1 else 'matches'} {self.asked}"
        run = " Where the reproduction says yes, faults.reproduce(…) with the fault's name makes it happen."
        return f"{what}.{run * any(fault.script for fault in self.faults)}"

    def __repr__(self) -> str:
        """Short when there is much: a notebook keeps it beside the HTML, and 80 KB more would help nobody."""
        if len(self.faults) <= FEW:
            return str(self)
        topics = ", ".join(f"{topic} ({len(faults)})" for topic, faults in self.topics.items())
        return "\n".join(textwrap.wrap(f"{self.title()} Topics: {topics}. print(…) shows all as text.", WIDTH))

    def __str__(self) -> str:
        lines = textwrap.wrap(self.title(), WIDTH)
        for topic, faults in self.topics.items():
            lines += ["", f"{topic} ({len(faults)})".upper()]
            for fault in faults:
                lines += ["", *_entry(fault)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return table_html.render(self.title(), self.topics, self.opened)


def table(topic: str | None = None, search: str = "") -> Table:
    """All known failures: what you see, what it means, how to be sure, the cure, and where you can run it.

    >>> [fault.id for fault in table(search="EADDRINUSE").faults]
    ['port-taken']

    Args:
        topic: one of ddp_helpers.faults.catalogue.TOPICS, such as "rendezvous" or "silent"; None for all.
        search: words that must all stand somewhere in a row, in any case; or a message as it was printed.

    Raises:
        ValueError: there is no such topic; the message lists those there are.
    """
    if topic is not None and topic not in TOPICS:
        raise ValueError(
            f"no topic {topic!r}; there are: {', '.join(TOPICS)}. To look for a word: table(search={topic!r})"
        )
    said = {fault.id for fault, pattern in searches() if pattern.search(search)} if search.strip() else set()
    words = search.lower().split()
    found = {
        name: tuple(fault for fault in catalogue(name) if fault.id in said or _holds(fault, name, words))
        for name in TOPICS
        if topic in (None, name)
    }
    asked = f'"{search.strip()}"' if words else ""
    asked += f" in the topic {topic}" if words and topic else ""
    return Table({name: faults for name, faults in found.items() if faults}, asked, bool(words or topic))


def _holds(fault: Fault, topic: str, words: list[str]) -> bool:
    row = (fault.id, topic, fault.see, fault.means, fault.sure, fault.cure, f"lesson {fault.lesson}", fault.needs)
    text = "\n".join(row).lower()
    return all(word in text for word in words)


def _entry(fault: Fault) -> list[str]:
    run = "yes" if fault.script else "no"
    lines = [f"{fault.id} · lesson {fault.lesson} · needs {fault.needs} · reproduction {run}"]
    rows = {"you see": fault.see, "it means": fault.means, "be sure": fault.sure, "cure": fault.cure}
    for name, text in rows.items():
        lead, indent = f"  {name:<10}", " " * 12
        for line in text.expandtabs(4).splitlines():
            lines += textwrap.wrap(line, WIDTH, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
            lead = indent
    return lines
