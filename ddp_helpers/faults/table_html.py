"""The table of faults as HTML: a topic folds out, and it reads well on light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from .fault import Fault

# A heading, and its share of the width in percent. The rest of a page's look is the page's own.
COLUMNS = {
    "what you see": 31,
    "what it means": 23,
    "how to be sure": 21,
    "cure": 25,
}
TABLE = (
    "table-layout:fixed;border-collapse:collapse;width:100%;margin:0;font-size:.9em;line-height:1.35;"
    "overflow-wrap:anywhere"
)
# JupyterLab aligns the text of cells to the right, and forgets <style> until a notebook is trusted: each cell says it.
CELL = "text-align:left;vertical-align:top"


def render(title: str, topics: Mapping[str, tuple[Fault, ...]], opened: bool) -> str:
    parts = "".join(_topic(name, faults, opened) for name, faults in topics.items())
    return f'<div style="max-width:90em"><div><b>{escape(title)}</b></div>{parts}</div>'


def _topic(name: str, faults: tuple[Fault, ...], opened: bool) -> str:
    heads = "".join(f'<th style="{CELL};width:{width}%">{head}</th>' for head, width in COLUMNS.items())
    return (
        f'<details{" open" * opened} style="margin-top:.4em">'
        f'<summary style="cursor:pointer"><b>{name}</b> ({len(faults)})</summary>'
        f'<table style="{TABLE}"><tr>{heads}</tr>{"".join(map(_row, faults))}</table></details>'
    )


def _row(fault: Fault) -> str:
    seen = "<br>".join(escape(line.strip()) for line in fault.see.splitlines())
    seen = seen if fault.silent else f"<code>{seen}</code>"
    run = f"lesson {fault.lesson} · needs {fault.needs} · reproduction {'yes' if fault.script else 'no'}"
    cells = [f"<b>{fault.id}</b><br>{run}<br>{seen}", *map(_text, (fault.means, fault.sure, fault.cure))]
    return "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _text(text: str) -> str:
    """Commands stand in `backticks` in the records."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
