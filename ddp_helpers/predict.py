"""predict(): commit to what a run will do before it runs; afterwards, prediction and outcome side by side."""

from __future__ import annotations

import contextlib
import html
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .view import in_notebook

WIDGET = "application/vnd.jupyter.widget-view+json"


class PredictionError(ValueError):
    """A call that cannot be meant so; the message says what to write in its place."""

    def _render_traceback_(self) -> list[str]:  # IPython shows this in place of a traceback through our own code
        return [f"{type(self).__name__}: {self}"]


@dataclass
class Prediction:
    """One question. `choice` is the option that the learner chose, None before that."""

    name: str
    question: str
    options: list[str]
    choice: str | None = None


def predict(
    name: str,
    question: str | None = None,
    options: Sequence[str] = (),
    choice: int | str | None = None,
    happened: int | str | None = None,
) -> None:
    """Ask before a run what it will do, and compare after it.

    >>> predict("01.a", "What does each of the four print?", ["45", "its share"], choice=2)  # doctest: +SKIP
    >>> predict("01.a", happened="45")  # doctest: +SKIP

    The first form shows the options: as radio buttons where Jupyter widgets work, and everywhere as a numbered list, in
    which `choice`, a number from 1 or an option's text, makes the choice. The second form sets the choice beside what
    `happened`, one of the options or its number. Choices are kept in ``runs/predictions.json`` beside the notebook.
    Without a choice, or where nothing can be written, the notebook goes on.

    Raises:
        PredictionError: (a ValueError) `choice` or `happened` is none of the options, or the options are missing.
    """
    book = _Book(Path.cwd() / "runs" / "predictions.json")
    if happened is not None:
        _show(*_comparison(book.read().get(name), happened))
        return
    if not question or len(options) < 2:
        raise PredictionError(f'predict("{name}", question, options) needs a question and at least two options.')
    asked = Prediction(name, question, list(options))
    earlier = book.read().get(name)
    if choice is not None:
        asked.choice = _chosen(asked.options, choice)
    elif earlier and earlier.choice in asked.options:
        asked.choice = earlier.choice  # Run All must not wipe it out
    obstacle = book.write(asked)
    _show(_asked_text(asked, obstacle), _asked_html(asked, obstacle), lambda: _radio_buttons(asked, book))


def _chosen(options: list[str], choice: int | str) -> str:
    if choice in options:
        return str(choice)
    if isinstance(choice, int) and 1 <= choice <= len(options):
        return options[choice - 1]
    raise PredictionError(f"choice={choice!r} is none of the options: {_numbered(options)}. Write choice=1, say.")


def _numbered(options: list[str]) -> str:
    return ", ".join(f"{number} ({option})" for number, option in enumerate(options, 1))


# ---- the record -----------------------------------------------------------------------------------------------------


class _Book:
    """All predictions made in one folder. Two notebooks may write it: it is read and replaced at each change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Prediction]:
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
            return {name: Prediction(name, **entry) for name, entry in entries.items()}
        except OSError:
            return {}
        except (ValueError, TypeError, AttributeError):  # not ours any more: keep it, begin anew
            with contextlib.suppress(OSError):
                os.replace(self._path, self._path.with_suffix(".json.bak"))
            return {}

    def write(self, prediction: Prediction) -> str:
        """Add or replace one entry; why it could not be kept, or ""."""
        entries = {name: asdict(entry) for name, entry in {**self.read(), prediction.name: prediction}.items()}
        for entry in entries.values():
            del entry["name"]
        text = json.dumps(entries, ensure_ascii=False, indent=1) + "\n"
        try:
            self._replace(text.encode("utf-8"))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _replace(self, content: bytes) -> None:
        self._path.parent.mkdir(exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".predictions")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
            os.replace(temporary, self._path)
        except OSError:
            os.unlink(temporary)
            raise


# ---- what is shown --------------------------------------------------------------------------------------------------


def _show(text: str, page: str, widget: Callable[[], Any] | None = None) -> None:
    """Display text and HTML, and in one with them the widget: each front end takes the richest that it knows."""
    if not in_notebook():
        print(text)
        return
    from IPython.display import display

    bundle: dict[str, Any] = {"text/plain": text, "text/html": page}
    made = widget() if widget else None
    if made is not None:
        bundle[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": made.model_id}
    display(bundle, raw=True)


def _radio_buttons(asked: Prediction, book: _Book) -> Any:
    """The options to click on; None where ipywidgets is not installed."""
    try:
        import ipywidgets as widgets
    except ImportError:
        return None
    wide = {"width": "auto"}
    buttons = widgets.RadioButtons(options=asked.options, value=asked.choice, layout=wide)
    status = widgets.HTML(_status(asked, clicked=True))

    def record(change: dict[str, Any]) -> None:
        asked.choice = change["new"]
        obstacle = book.write(asked)
        status.value = html.escape(_cannot(obstacle)) if obstacle else _status(asked, clicked=True)

    buttons.observe(record, names="value")
    question = widgets.HTML(f"<b>Predict.</b> {html.escape(asked.question)}", layout=wide)
    return widgets.VBox([question, buttons, status])


def _status(asked: Prediction, clicked: bool = False) -> str:
    if asked.choice is not None:
        return f'Recorded: "{asked.choice}".'
    if clicked:
        return "Choose before you run the next cell."
    *first, last = (str(number) for number in range(1, len(asked.options) + 1))
    return f"Commit yourself: add choice={', '.join(first)} or {last} to this call, and run it again."


def _cannot(obstacle: str) -> str:
    return f"This could not be recorded ({obstacle}): write it down, and go on."


def _asked_text(asked: Prediction, obstacle: str) -> str:
    lines = [f"Predict. {asked.question}"]
    lines += [f"  {number}. {option}" for number, option in enumerate(asked.options, 1)]
    return "\n".join([*lines, _cannot(obstacle) if obstacle else _status(asked)])


def _asked_html(asked: Prediction, obstacle: str) -> str:
    items = "".join(
        f"<li>{f'<b>{html.escape(option)}</b>' if option == asked.choice else html.escape(option)}</li>"
        for option in asked.options
    )
    status = html.escape(_cannot(obstacle) if obstacle else _status(asked))
    question = html.escape(asked.question)
    return f"<b>Predict.</b> {question}<ol>{items}</ol><span style='opacity:.7'>{status}</span>"


def _comparison(asked: Prediction | None, happened: int | str) -> tuple[str, str]:
    if isinstance(happened, int):
        happened = asked.options[happened - 1] if asked and 1 <= happened <= len(asked.options) else str(happened)
    if asked and happened not in asked.options:
        raise PredictionError(
            f'"{happened}" is none of the options of prediction {asked.name}: {_numbered(asked.options)}. '
            "If the lesson has changed since you answered, run the prediction's cell again."
        )
    if asked is None or asked.choice is None:
        predicted, remark = "", "(No prediction of yours was recorded.)"
    elif asked.choice == happened:
        predicted, remark = asked.choice, "As you predicted."
    else:
        predicted, remark = asked.choice, "Not as you predicted. This is where there is something to learn: read on."
    rows = {**({"You predicted": predicted} if predicted else {}), "What happened": happened}
    text = "\n".join([*(f"{name}:  {value}" for name, value in rows.items()), remark]).rstrip()
    cells = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{name}</td>'
        f'<td style="text-align:left"><b>{html.escape(value)}</b></td></tr>'
        for name, value in rows.items()
    )
    return text, f"<table>{cells}</table>{html.escape(remark)}"
