"""What a cell shows during and after a run: a header, the ranks' lines in their colours, live lines, a notice.

One display is updated in place, at most five times a second. What stays is plain text and HTML, which read well in
JupyterLab, VS Code, Colab, nbconvert and on the web; without a notebook the lines are printed as they come.
"""

from __future__ import annotations

import html
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .logs import Line
from .pictures.palette import ALARM, colour, ink

HEAD, TAIL = 100, 100  # lines of a long output that are shown
SECONDS_BETWEEN_UPDATES = 0.2
# Outputs should look like print()'s. JupyterLab breaks a <pre> inside words, begins it further left and sets it larger;
# nbconvert's pages take its typewriter face away.
PRE = (
    "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;margin:0;padding-left:.45em;"
    "font-family:var(--jp-code-font-family,monospace);font-size:.93em;line-height:1.45"
)
NOTICE = f"display:block;border-left:.3em solid {ALARM};padding-left:.6em;margin-top:.3em;font-weight:bold"


@dataclass
class View:
    """The display of one run. `title` says what runs where: "4 ranks on CPU with gloo: this machine has no GPU"."""

    title: str
    log_dir: Path
    notebook: bool = False
    head: list[Line] = field(default_factory=list)
    tail: deque[Line] = field(default_factory=lambda: deque(maxlen=TAIL))
    live: list[Line] = field(default_factory=list)
    notice: str = ""
    status: str = "running"
    hidden: int = 0
    started: float = field(default_factory=time.monotonic)
    _shown: float = 0.0
    _handle: Any = None

    def add(self, lines: list[Line], live: list[Line]) -> None:
        """Take new lines, and show them if the last update is long enough ago."""
        for line in lines:
            if len(self.head) < HEAD:
                self.head.append(line)
            else:
                self.hidden += len(self.tail) == TAIL
                self.tail.append(line)
        self.live = live
        if not self.notebook:
            _print("".join(f"[rank {line.rank}] {line.text}\n" for line in lines))
        elif time.monotonic() - self._shown >= SECONDS_BETWEEN_UPDATES:
            self.show()

    def finish(self, status: str, failed: bool = False) -> None:
        """Show the final state: `status` is what the header ends with; a notice is gone.

        `failed`: an error is shown below, so the tracebacks that ranks printed are taken away (files keep them).
        """
        silent = not self.head and not failed
        self.status, self.live, self.notice = status + ", nothing printed" * silent, [], ""
        if failed:
            lines = _without_tracebacks([*self.head, *self.tail])
            self.head, self.tail = lines[:HEAD], deque(lines[HEAD:], TAIL)
        if self.notebook:
            self.show()
        else:
            _print(self._header() + "\n")

    def say(self, notice: str) -> None:
        self.notice = notice
        if self.notebook:
            self.show()
        elif notice:
            _print(notice + "\n")

    def show(self) -> None:
        from IPython.display import display

        self._shown = time.monotonic()
        bundle = {"text/plain": self.as_text(), "text/html": self.as_html()}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    # -- as text, as HTML

    def _header(self) -> str:
        if self.status == "running":
            return f"{self.title} · running, {time.monotonic() - self.started:.0f} s"
        return f"{self.title} · {self.status}"

    def _gap(self) -> str:
        return f"… {self.hidden:,} more lines; all of them are in {shown_path(self.log_dir)}"

    def as_text(self) -> str:
        lines = [self._header()]
        lines += [f"[rank {line.rank}] {line.text}" for line in self.head]
        lines += [self._gap()] if self.hidden else []
        lines += [f"[rank {line.rank}] {line.text}" for line in (*self.tail, *self.live)]
        return "\n".join([*lines, self.notice] if self.notice else lines)

    def as_html(self) -> str:
        rows = [f'<span style="opacity:.7">{html.escape(self._header())}</span>']
        rows += [_row(line) for line in self.head]
        rows += [f'<span style="opacity:.7">{html.escape(self._gap())}</span>'] if self.hidden else []
        rows += [_row(line) for line in (*self.tail, *self.live)]
        if self.notice:
            rows.append(f'<span style="{NOTICE}">{html.escape(self.notice)}</span>')
        return f'<pre style="{PRE}">' + "\n".join(rows) + "</pre>"


def _print(text: str) -> None:
    """Print what the terminal can show; a rank may print any character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def _without_tracebacks(lines: list[Line]) -> list[Line]:
    in_traceback: set[int] = set()
    kept = []
    for line in lines:
        if line.stream == "stderr" and "Traceback (most recent call last)" in line.text:
            in_traceback.add(line.rank)
        if line.stream == "stdout" or line.rank not in in_traceback:
            kept.append(line)
    return kept


def _row(line: Line) -> str:
    chip = f"background:{colour(line.rank)};color:{ink(line.rank)};padding:0 .4em;border-radius:.3em"
    text = html.escape(line.text)
    text = f'<span style="opacity:.75">{text}</span>' if line.stream == "stderr" else text
    return f'<span style="{chip}">rank {line.rank}</span> {text}'


def shown_path(path: Path) -> str:
    """A path as people should see it: below the notebook's folder, with forward slashes."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def in_notebook() -> bool:
    """Whether an IPython kernel, and not a terminal or a plain script, shows what we print."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class Silent(View):
    """Shows nothing: for checks, which run scripts of their own accord."""

    def add(self, lines: list[Line], live: list[Line]) -> None:
        pass

    def finish(self, status: str, failed: bool = False) -> None:
        pass

    def say(self, notice: str) -> None:
        pass
