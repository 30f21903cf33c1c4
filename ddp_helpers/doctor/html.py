"""The report as HTML that reads well on light and dark pages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Report

# Background and ink of each level's chip. The chip brings its own background, so its contrast does not depend on the
# theme; the sign and the word say the same without colour. All other text takes the page's own colour.
CHIPS = {
    "ok": ("✔ ok", "#009E73", "#000000"),
    "note": ("· note", "#56B4E9", "#000000"),
    "warning": ("▲ warning", "#E69F00", "#000000"),
    "problem": ("✘ problem", "#A63C00", "#FFFFFF"),
    "advice": ("» ranks", "#0072B2", "#FFFFFF"),
}
CELL = "text-align:left;vertical-align:top;padding:0.35em 0.7em;background:none;white-space:normal;"


def render(report: Report) -> str:
    rows = [_row(line.level, line.name, line.found, line.matters, line.do) for line in report.shown]
    advice = report.advice
    found = f"{advice.ranks} ranks on {advice.device} with {advice.backend}"
    rows.append(_row("advice", "world size", found, advice.why, ""))
    links = " ".join(f'<a href="{escape(url)}">[{number}]</a>' for number, url in enumerate(report.machine.urls, 1))
    source = f'<div style="opacity:0.8">recorded machine: {escape(report.machine.source)} {links}</div>'
    return (
        '<div style="max-width:75em;line-height:1.4">'
        f'<div style="font-weight:bold;font-size:1.1em">{escape(report.title())}</div>'
        f"{source if report.machine.source else ''}"
        '<table style="border-collapse:collapse;table-layout:auto;margin:0.5em 0;width:100%">'
        f"{''.join(rows)}</table>"
        f'<div style="opacity:0.8">{escape(report.silent())}</div>'
        f'<div style="font-weight:bold">{escape(report.summary())}</div></div>'
    )


def _row(level: str, name: str, found: str, matters: str, do: str) -> str:
    word, background, ink = CHIPS[level]
    chip = (
        f'<span style="background:{background};color:{ink};padding:0.1em 0.5em;border-radius:0.3em;'
        f'white-space:nowrap">{word}</span>'
    )
    todo = f'<div style="margin-top:0.25em"><b>→</b> {escape(do)}</div>' if do else ""
    return (
        '<tr style="background:none;border-top:1px solid rgba(128,128,128,0.35)">'
        f'<td style="{CELL}">{chip}</td><td style="{CELL}white-space:nowrap"><b>{escape(name)}</b></td>'
        f'<td style="{CELL}width:100%"><b>{escape(found)}.</b> {escape(matters)}{todo}</td></tr>'
    )
