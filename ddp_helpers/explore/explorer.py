"""What all explorers share: controls beside a picture that follows them, and a still picture where no widgets run."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..pictures.display import flat_png
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
        self.controls = dict(controls)
        self._draw, self._explain = draw, explain
        self._figure: Figure | None = None
        self._shown_text = ""
        self.widget: Any = None
        library = widgets()
        if not isinstance(library, _StandIns):
            # A box stretches what is in it to its own width, and a picture would be blurred.
            natural = library.Layout(align_self="flex-start")
            self._image, self._text = library.Image(format="png", layout=natural), library.HTML()
            self.widget = library.VBox([self._panel(library), self._image, self._text])
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
        if self.widget is None:
            self._update()

    def _panel(self, widgets: Any) -> Any:
        layout = widgets.Layout(display="flex", flex_flow="row wrap", max_width="800px")
        return widgets.Box(list(self.controls.values()), layout=layout)

    def _update(self) -> None:
        try:
            self._figure = self._draw(**self.values)
            self._shown_text = self._explain(**self.values) if self._explain else ""
        except ValueError as error:
            self._figure, self._shown_text = None, str(error)
        if self.widget is None:
            return
        self._image.layout.display = None if self._figure else "none"
        if self._figure:
            self._image.value = quick_png(self._figure)
        self._text.value = f'<pre style="white-space:pre-wrap">{html.escape(self._shown_text)}</pre>'

    def _ipython_display_(self) -> None:
        """One output in several forms; each front end takes the richest that it knows."""
        if not in_notebook():
            print(self._shown_text)
            return
        from IPython.display import display

        bundle: dict[str, Any] = {"text/plain": self._shown_text or "an explorer: it needs Jupyter widgets"}
        sizes = {}
        if self._figure:
            bundle["image/png"], sizes["image/png"] = flat_png(self._figure)
        if self.widget is not None:
            bundle[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        display(bundle, metadata=sizes, raw=True)


def quick_png(figure: Figure) -> bytes:
    """Half as sharp as a still picture and hardly compressed: three times quicker."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def widgets() -> Any:
    """ipywidgets; where it is missing, stand-ins for its controls, which hold a value and are never shown."""
    try:
        import ipywidgets
    except ImportError:
        return _StandIns()
    return ipywidgets


class _StandIns:
    def __getattr__(self, name: str) -> Callable[..., SimpleNamespace]:
        def control(value: Any = None, *_: Any, options: Any = (None,), **__: Any) -> SimpleNamespace:
            return SimpleNamespace(value=next(iter(options)) if value is None else value)

        return control
