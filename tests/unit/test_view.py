"""What a cell shows of a run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ddp_helpers.logs import Line
from ddp_helpers.result import LaunchError
from ddp_helpers.view import HEAD, TAIL, View


def view(**options: bool) -> View:
    return View("2 ranks on CPU", Path("runs/0001-a"), **options)


def notebook_view(monkeypatch: pytest.MonkeyPatch) -> View:
    monkeypatch.setattr(View, "show", lambda self: None)
    return view(notebook=True)


def test_a_long_output_shows_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = notebook_view(monkeypatch)
    shown.add([Line(0, "stdout", f"line {n}") for n in range(1000)], [])
    text = shown.as_text().splitlines()
    assert text[1] == "[rank 0] line 0"
    assert text[HEAD + 1].startswith(f"… {1000 - HEAD - TAIL:,} more lines")
    assert text[-1] == "[rank 0] line 999"


def test_tracebacks_go_when_the_error_is_shown_below(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = notebook_view(monkeypatch)
    lines = ["a warning", "[rank1]: Traceback (most recent call last):", "[rank1]:   File …", "[rank1]: KeyError: 'x'"]
    shown.add([Line(1, "stderr", line) for line in lines] + [Line(1, "stdout", "said")], [])
    shown.finish("failed after 0.1 s", failed=True)
    assert shown.as_text().splitlines()[1:] == ["[rank 1] a warning", "[rank 1] said"]


def test_what_ranks_print_cannot_become_html(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = notebook_view(monkeypatch)
    shown.add([Line(0, "stdout", "<script>alert(1)</script> & <b>")], [Line(1, "stderr", "<i>")])
    assert "<script>" not in shown.as_html()
    assert "&lt;script&gt;" in shown.as_html()
    assert "<i>" not in shown.as_html()


def test_a_run_that_prints_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    view().finish("0.1 s, warm start")
    assert capsys.readouterr().out == "2 ranks on CPU · 0.1 s, warm start, nothing printed\n"


def test_a_terminal_of_any_encoding_gets_what_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    ascii_terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr("sys.stdout", ascii_terminal)
    view().add([Line(0, "stdout", "größe ☃")], [])
    assert ascii_terminal.buffer.getvalue() == b"[rank 0] gr??e ?\n"  # type: ignore[attr-defined]


def test_errors_are_wrapped_between_words_and_code_is_left() -> None:
    code = "  cell line 3:  " + "x" * 90
    rendered = LaunchError("word " * 30 + "\n" + code)._render_traceback_()
    assert all(len(line) <= 90 for line in rendered[0].splitlines())
    assert rendered[1] == code


def test_so_are_errors_that_a_cell_expects() -> None:
    code = "  cell line 3:  " + "x" * 90
    first, *lines, last = LaunchError("word " * 30 + "\n" + code).as_expected().splitlines()
    assert first.startswith("LaunchError, as expected: word ") and last == code
    assert lines and all(len(line) <= 76 for line in [first, *lines])
