"""The frame of all explorers: a control's move changes picture and text, and what cannot be drawn is said."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from ipywidgets import IntSlider
from matplotlib.figure import Figure

from ddp_helpers import explore
from ddp_helpers.explore import Explorer


@pytest.fixture
def drawn() -> list[int]:
    return []


@pytest.fixture
def explorer(drawn: list[int]) -> Explorer:
    def draw(ranks: int) -> Figure:
        if ranks > 4:
            raise ValueError("at most 4 ranks")
        drawn.append(ranks)
        figure = Figure()
        figure.text(0.5, 0.5, f"{ranks} ranks")
        return figure

    return Explorer({"ranks": IntSlider(2, 1, 8)}, draw, lambda ranks: f"world size {ranks} <&>")


def test_a_moved_control_redraws_and_explains(explorer: Explorer, drawn: list[int]) -> None:
    first = explorer._image.value
    explorer.set(ranks=3)
    assert drawn == [2, 3] and explorer.values == {"ranks": 3}
    assert explorer.text == "world size 3 <&>" and "world size 3 &lt;&amp;&gt;" in explorer._text.value
    assert explorer._image.value != first and bytes(explorer._image.value).startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_said_in_place_of_the_picture(explorer: Explorer) -> None:
    explorer.set(ranks=5)
    assert explorer.text == "at most 4 ranks" and explorer._image.layout.display == "none"
    explorer.set(ranks=4)
    assert explorer._image.layout.display is None


def test_without_widgets_there_is_a_still_picture(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr("ddp_helpers.explore.explorer.in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle))
    explorer._ipython_display_()
    assert shown[0].keys() == {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"}


def test_an_unknown_control_is_an_error(explorer: Explorer) -> None:
    with pytest.raises(KeyError):
        explorer.set(size=3)


def test_without_ipywidgets_the_still_picture_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """g09"""
    shown: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr("ddp_helpers.explore.explorer.in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle))
    for make in (explore.samplers, explore.collectives, explore.batch):
        explorer = make()
        first = explorer.text
        explorer._ipython_display_()
        explorer.set(ranks=3)
        assert explorer.text != first
    assert [bundle.keys() for bundle in shown] == [{"text/plain", "image/png"}] * 3
