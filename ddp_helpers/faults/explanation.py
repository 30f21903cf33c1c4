"""What `explain()` answers, as text and as HTML."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from .fault import Fault

WIDTH = 100
KNOWN, UNKNOWN = ("#009E73", "#000000"), ("#E69F00", "#000000")  # background and ink, as in the doctor's report
CELL = "text-align:left;vertical-align:top;padding:0.2em 0.7em;background:none;white-space:normal;"


class Evidence(NamedTuple):
    line: int  # in the log, from 1
    rank: int | None
    text: str


@dataclass(frozen=True, repr=False)
class Explanation:
    """`explanation = explain(run)`; then look at it, or at its parts.

    known      whether the cause was found; if not, `missing` says what to look for
    headline   the cause in one line
    root_rank  the rank that failed first (of a hang: the one that did not come); None when the log does not say
    exception  its error, "" if it left none
    place      the innermost line of the script's own code on the way to it
    evidence   the lines of the log that say so
    same       ranks that failed in the same way
    victims    ranks that only fell with it
    faults     the likely faults, the likeliest first: .id .means .sure .cure .lesson
    """

    known: bool
    headline: str
    root_rank: int | None = None
    exception: str = ""
    place: str = ""
    evidence: tuple[Evidence, ...] = ()
    same: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    missing: str = ""

    @property
    def fault(self) -> Fault | None:
        """The likeliest fault."""
        return self.faults[0] if self.faults else None

    def __repr__(self) -> str:
        lines = _wrap(self.headline, "")
        if self.place:
            lines += _wrap(f"at {self.place}", "  ")
        lines += _wrap(self._others(), "  ") if self._others() else []
        if self.evidence:
            lines += ["What the log says:", *(f"  {_said(e)}" for e in self.evidence)]
        if self.missing:
            lines += _wrap(self.missing, "")
        for number, fault in enumerate(self.faults):
            lead = "This is" if self.known and not number else "It may be"
            lines += ["", *_wrap(f"{lead} {fault.id} (lesson {fault.lesson}). {fault.means}", "")]
            lines += _wrap(f"To be sure: {fault.sure}", "  ")
            lines += _wrap(f"Cure: {fault.cure}", "  ")
        return "\n".join(lines)

    def _others(self) -> str:
        parts = []
        if self.same:
            parts.append(f"{ranks(self.same)} failed in the same way.")
        if self.victims:
            parts.append(f"{ranks(self.victims)} only fell with it.")
        return " ".join(parts)

    def _repr_html_(self) -> str:
        background, ink = KNOWN if self.known else UNKNOWN
        word = "found" if self.known else "not in the log"
        chip = f"background:{background};color:{ink};padding:0.1em 0.5em;border-radius:0.3em;white-space:nowrap"
        body = [f'<span style="{chip}">{word}</span> <b>{escape(self.headline)}</b>']
        body += [f"<div>at {escape(self.place)}</div>"] if self.place else []
        body += [f"<div>{escape(self._others())}</div>"] if self._others() else []
        if self.evidence:
            said = "\n".join(escape(_said(e)) for e in self.evidence)
            body.append(f'<pre style="white-space:pre-wrap;margin:0.4em 0 0.4em 1em;font-size:.93em">{said}</pre>')
        body += [f"<div>{escape(self.missing)}</div>"] if self.missing else []
        body += [_card(fault) for fault in self.faults]
        return f'<div style="max-width:75em;line-height:1.4">{"".join(body)}</div>'


def _card(fault: Fault) -> str:
    rows = [("means", fault.means), ("to be sure", fault.sure), ("cure", fault.cure)]
    cells = "".join(
        f'<tr style="background:none"><td style="{CELL}white-space:nowrap;opacity:0.8">{name}</td>'
        f'<td style="{CELL}width:100%">{escape(text)}</td></tr>'
        for name, text in rows
    )
    title = f"<b>{escape(fault.id)}</b> · lesson {fault.lesson}"
    return (
        '<div style="border-top:1px solid rgba(128,128,128,0.35);margin-top:0.5em;padding-top:0.3em">'
        f'{title}<table style="table-layout:auto;border-collapse:collapse;margin:0;width:100%">{cells}</table></div>'
    )


def ranks(numbers: tuple[int, ...]) -> str:
    return f"Rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _said(evidence: Evidence) -> str:
    who = "" if evidence.rank is None else f"rank {evidence.rank}, "
    text = evidence.text.strip()
    return f"{who}line {evidence.line}: {text if len(text) <= 200 else text[:200] + ' …'}"


def _wrap(text: str, indent: str) -> list[str]:
    return [
        line
        for paragraph in text.splitlines()
        for line in textwrap.wrap(
            paragraph, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
    ]
