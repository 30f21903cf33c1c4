"""What all explorers share: controls beside a picture that follows them, and a still picture where no widgets run."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..predict import WIDGET
from ..view import in_notebook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100  # twice that is sharper, and three times slower: a slider must be answered within 100 ms


class Explorer:
    """Controls and what they show. The last line of a cell shows it: widgets where they run, else the first picture.

    >>> from ddp_helpers import explore
    >>> explorer = explore.samplers(size=10, ranks=4)  # doctest: +SKIP
    >>> explorer.set(shuffle=True)  # what moving a control does, from Python  # doctest: +SKIP

    Args:
        controls: ipywidgets by the name of draw's argument that each one sets.
        draw: takes the controls' values by name; returns a Figure, or raises ValueError with a text that says what
            cannot be drawn, which is then shown in its place.
        explain: the same; returns text to show below the picture (code, or what there is to see). Optional.
    """

    def __init__(
        self,
        controls: Mapping[str, Any],
        draw: Callable[..., Figure],
        explain: Callable[..., str] | None = None,
    ) -> None:
        import ipywidgets as widgets

        self.controls = dict(controls)
        self._draw, self._explain = draw, explain
        self._image = widgets.Image(format="png")
        self._text = widgets.HTML()
        self.widget = widgets.VBox([self._panel(widgets), self._image, self._text])
        for control in self.controls.values():
            control.observe(lambda change: self._update(), names="value")
        self._update()

    @property
    def values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    @property
    def text(self) -> str:
        """What stands below the picture."""
        return self._shown_text

    def set(self, **values: Any) -> None:
        """Move controls: `explorer.set(ranks=3)`. Raises KeyError for a control that there is not."""
        for name, value in values.items():
            self.controls[name].value = value

    def _panel(self, widgets: Any) -> Any:
        layout = widgets.Layout(display="flex", flex_flow="row wrap", max_width="800px")
        return widgets.Box(list(self.controls.values()), layout=layout)

    def _update(self) -> None:
        try:
            figure = self._draw(**self.values)
            self._shown_text = self._explain(**self.values) if self._explain else ""
        except ValueError as error:
            self._shown_text = str(error)
            self._image.layout.display = "none"
        else:
            self._image.value = png(figure)
            self._image.layout.display = None
        self._text.value = f'<pre style="white-space:pre-wrap">{html.escape(self._shown_text)}</pre>'

    def _ipython_display_(self) -> None:
        """One output in several forms; each front end takes the richest that it knows."""
        if not in_notebook():
            print(self._shown_text)
            return
        from IPython.display import display

        bundle = {
            "text/plain": self._shown_text or "an explorer: it needs a notebook with Jupyter widgets",
            "image/png": base64.b64encode(self._image.value).decode("ascii"),
            WIDGET: {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id},
        }
        display(bundle, raw=True)


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()
