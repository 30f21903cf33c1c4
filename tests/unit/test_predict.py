"""predict(): recorded, compared, and never in the way."""

from __future__ import annotations

import builtins
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from ddp_helpers import predict
from ddp_helpers.predict import WIDGET, PredictionError

MODULE = importlib.import_module("ddp_helpers.predict")  # the package's attribute of that name is the function

QUESTION, OPTIONS = "What does rank 2 print?", ["nothing", "größe ✓ 学习", "2 < 3"]


@pytest.fixture(autouse=True)
def notebook_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recorded(name: str = "01.a") -> dict[str, Any]:
    return dict(json.loads(Path("runs/predictions.json").read_text(encoding="utf-8"))[name])


def test_without_widgets_the_options_are_a_numbered_list(capsys: pytest.CaptureFixture[str]) -> None:
    predict("01.a", QUESTION, OPTIONS)
    shown = capsys.readouterr().out
    assert shown.splitlines()[:4] == [f"Predict. {QUESTION}", "  1. nothing", "  2. größe ✓ 学习", "  3. 2 < 3"]
    assert "choice=1, 2 or 3" in shown
    assert recorded() == {"question": QUESTION, "options": OPTIONS, "choice": None}


def test_a_choice_by_number_or_text_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    predict("01.a", QUESTION, OPTIONS, choice=2)
    assert recorded()["choice"] == "größe ✓ 学习" and 'Recorded: "größe ✓ 学习".' in capsys.readouterr().out
    predict("01.b", QUESTION, OPTIONS, choice="2 < 3")
    assert recorded("01.b")["choice"] == "2 < 3"
    assert recorded("01.a")["choice"] == "größe ✓ 学习"  # the other one stays
    assert "größe ✓ 学习" in Path("runs/predictions.json").read_bytes().decode("utf-8")


def test_run_all_keeps_an_earlier_choice_while_it_is_still_an_option() -> None:
    predict("01.a", QUESTION, OPTIONS, choice=3)
    predict("01.a", QUESTION, OPTIONS)
    assert recorded()["choice"] == "2 < 3"
    predict("01.a", QUESTION, ["other", "options"])
    assert recorded()["choice"] is None


@pytest.mark.parametrize("choice", [0, 4, -1, "three"])
def test_a_choice_that_is_no_option_is_told_with_the_options(choice: int | str) -> None:
    with pytest.raises(PredictionError, match=r"none of the options: 1 \(nothing\), 2"):
        predict("01.a", QUESTION, OPTIONS, choice=choice)


def test_prediction_and_outcome_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    predict("01.a", QUESTION, OPTIONS, choice=1)
    capsys.readouterr()
    predict("01.a", happened="2 < 3")
    assert capsys.readouterr().out.splitlines()[:2] == ["You predicted:  nothing", "What happened:  2 < 3"]
    predict("01.a", happened="nothing")
    assert capsys.readouterr().out.splitlines()[-1] == "As you predicted."


def test_an_outcome_without_a_prediction_says_so_and_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    predict("01.a", happened="nothing")
    assert "No prediction of yours was recorded" in capsys.readouterr().out
    predict("01.a", QUESTION, OPTIONS)
    predict("01.a", happened="nothing")
    assert "No prediction of yours was recorded" in capsys.readouterr().out


def test_an_outcome_that_is_no_option_is_told_with_the_options() -> None:
    predict("01.a", QUESTION, OPTIONS)
    with pytest.raises(PredictionError, match=r'"something" is none of the options.*3 \(2 < 3\)'):
        predict("01.a", happened="something")


def test_a_question_without_options_is_told() -> None:
    with pytest.raises(PredictionError, match="at least two options"):
        predict("01.a", QUESTION)


@pytest.mark.parametrize("content", ["{half", "[1, 2]", '{"01.a": {"question": 1, "unknown": 2}}', "null"])
def test_a_broken_record_is_kept_aside_and_stops_nothing(content: str, notebook_folder: Path) -> None:
    (notebook_folder / "runs").mkdir()
    (notebook_folder / "runs" / "predictions.json").write_text(content, encoding="utf-8")
    predict("01.a", QUESTION, OPTIONS, choice=1)
    assert recorded()["choice"] == "nothing"
    assert (notebook_folder / "runs" / "predictions.json.bak").read_text(encoding="utf-8") == content


def test_where_nothing_can_be_written_the_notebook_goes_on(
    notebook_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (notebook_folder / "runs").write_text("a file in the way", encoding="utf-8")
    predict("01.a", QUESTION, OPTIONS, choice=1)
    assert "could not be recorded (File exists)" in capsys.readouterr().out
    predict("01.a", happened="nothing")


def test_a_failed_write_leaves_the_earlier_record_and_no_scrap(
    notebook_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict("01.a", QUESTION, OPTIONS, choice=1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MODULE.os, "replace", full)
    predict("01.a", QUESTION, OPTIONS, choice=2)
    assert recorded()["choice"] == "nothing"
    assert [path.name for path in (notebook_folder / "runs").iterdir()] == ["predictions.json"]


# ---- in a notebook --------------------------------------------------------------------------------------------------


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a notebook would get."""
    bundles: list[dict[str, Any]] = []
    monkeypatch.setattr(MODULE, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: bundles.append(bundle))
    return bundles


def test_a_notebook_gets_text_and_html_and_radio_buttons_in_one(displayed: list[dict[str, Any]]) -> None:
    predict("01.a", QUESTION, OPTIONS)
    (bundle,) = displayed
    assert set(bundle) == {"text/plain", "text/html", WIDGET}
    for part in ("<ol>", "2 &lt; 3", "choice=1, 2 or 3"):
        assert part in bundle["text/html"]


def test_a_click_records(displayed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    import ipywidgets

    made: list[Any] = []
    radio_buttons = ipywidgets.RadioButtons
    monkeypatch.setattr("ipywidgets.RadioButtons", lambda **kw: made.append(radio_buttons(**kw)) or made[-1])
    predict("01.a", QUESTION, OPTIONS)
    assert made[0].value is None
    made[0].value = OPTIONS[2]
    assert recorded()["choice"] == OPTIONS[2]
    predict("01.a", QUESTION, OPTIONS)  # the cell is run again
    assert made[1].value == OPTIONS[2]
    predict("01.a", happened=OPTIONS[2])
    assert "As you predicted." in displayed[-1]["text/plain"] and WIDGET not in displayed[-1]


def test_a_notebook_without_ipywidgets_is_complete(
    displayed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kw: Any) -> Any:
        if name == "ipywidgets":
            raise ImportError(name)
        return real(name, *args, **kw)

    monkeypatch.setattr(builtins, "__import__", refuse)
    predict("01.a", QUESTION, OPTIONS, choice=2)
    (bundle,) = displayed
    assert set(bundle) == {"text/plain", "text/html"} and "<b>größe ✓ 学习</b>" in bundle["text/html"]
