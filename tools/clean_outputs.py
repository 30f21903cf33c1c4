"""Take out of a run notebook's outputs what belongs to the machine and the moment.

Paths lose what stands before the project, process ids and free ports become small stable numbers, memory addresses and
log times go. Measured durations stay: they are what a lesson talks about, and they change only when it is built again.
"""

from __future__ import annotations

import re
import socket
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT_TYPES = ("text/plain", "text/html", "text/markdown", "image/svg+xml")
WIDGET = "application/vnd.jupyter.widget-view+json"

# The word "pid", then at most a few signs (": ", "=", HTML tags between table cells), then the number.
PID = re.compile(r"(?i)(\bpids?\b[^\d\n]{0,20}?)(\d{2,7})\b")
# Linux hands out ports from 32768 on; a port below is one that the lesson chose, and stays.
PORT = re.compile(r"(?i)(port[^\d\n]{0,20}?|(?:127\.0\.0\.1|localhost|\[::1\]|\]):)(\d{5})\b")
FIRST_FREE_PORT = 32768
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
# torch's log lines: level, month and day, time, process id.
LOG_HEAD = re.compile(r"\b([EIWF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ")


@dataclass
class Renamer:
    """Numbers the values of a kind in the order of first sight: equal ones stay equal, unequal ones unequal."""

    first: int
    seen: dict[str, str] = field(default_factory=dict)

    def __call__(self, value: str) -> str:
        return self.seen.setdefault(value, str(self.first + len(self.seen)))


@dataclass
class OutputCleaner:
    """`OutputCleaner(scratch).clean(notebook)`: `scratch` is the folder whose notebooks/ the notebook was run in."""

    scratch: Path
    pids: Renamer = field(default_factory=lambda: Renamer(1001))
    ports: Renamer = field(default_factory=lambda: Renamer(50001))

    def clean(self, notebook: Any) -> None:
        """Change the outputs of `notebook` in place."""
        self.folders = known_folders(self.scratch)
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # when each cell started
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if not is_bare_widget(output)]
                for output in cell.outputs:
                    self._clean_output(output)

    def text(self, text: str) -> str:
        """What `text` reads like on any machine."""
        for folder, name in self.folders:
            text = text.replace(folder, name)
        text = replace_host(text)
        text = LOG_HEAD.sub(r"\g<1>0101 00:00:00.000000 0 ", text)
        text = PID.sub(lambda match: match[1] + self.pids(match[2]), text)
        text = PORT.sub(self._port, text)
        return ADDRESS.sub("0x…", text)

    def _port(self, match: re.Match[str]) -> str:
        free = FIRST_FREE_PORT <= int(match[2]) < 65536
        return match[1] + (self.ports(match[2]) if free else match[2])

    def _clean_output(self, output: Any) -> None:
        data = output.get("data", {})
        data.pop(WIDGET, None)  # its state is not kept, so that there is nothing to show
        for kind in TEXT_TYPES:
            if kind in data:
                data[kind] = apply(self.text, data[kind])
        if "text" in output:
            output["text"] = apply(self.text, output["text"])
        if output.output_type == "error":
            output["evalue"] = self.text(output["evalue"])
            output["traceback"] = apply(self.text, output["traceback"])


def apply(change: Callable[[str], str], text: str | list[str]) -> str | list[str]:
    """`change` on a text, or on each of a list of texts."""
    return [change(line) for line in text] if isinstance(text, list) else change(text)


def is_bare_widget(output: Any) -> bool:
    """True for a widget that has nothing else to show where widgets do not run; its repr() is nothing to read."""
    kinds = set(output.get("data", {}))
    return WIDGET in kinds and kinds <= {WIDGET, "text/plain"}


def known_folders(scratch: Path) -> list[tuple[str, str]]:
    """Folder prefixes and what they become, longest first, so that the innermost one is what is replaced."""
    project = Path(__file__).resolve().parent.parent
    names = {f"{project}/": "", f"{sysconfig.get_paths()['stdlib']}/": "…/python/", f"{sys.prefix}/": "…/"}
    names[f"{sysconfig.get_paths()['purelib']}/"] = "…/site-packages/"
    for root in {scratch, scratch.resolve()}:  # macOS: /tmp is a link
        names |= {f"{root}/notebooks/": "", f"{root}/notebooks": ".", f"{root}/": "", str(root): ".."}
    names |= {str(project): ".", str(Path.home()): "~"}
    usable = ((folder, name) for folder, name in names.items() if len(folder) > 2)  # a home of "/" would hit all
    return sorted(usable, key=lambda pair: len(pair[0]), reverse=True)


def replace_host(text: str) -> str:
    """`text` without this machine's name."""
    host = socket.gethostname()
    if len(host) < 3 or host == "localhost":
        return text
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "this-machine", text)
