"""Make a matplotlib Figure show itself when it is the last line of a cell."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from .canvas import OURS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib.figure import Figure


def show_figures(shell: InteractiveShell) -> None:
    """`show_figures(get_ipython())`: from now on a Figure is displayed as a sharp PNG.

    IPython knows how to draw a Figure only after pyplot has been set up, and our pictures never touch pyplot's global
    state: without this a cell would answer "<Figure size 800x300 with 1 Axes>". The formatter is registered by name, so
    that matplotlib is imported no earlier than the first picture. A formatter that is already there stays.
    """
    if shell.display_formatter is None:
        return
    formatter = shell.display_formatter.formatters["image/png"]
    if "matplotlib.figure.Figure" not in formatter:
        formatter.for_type_by_name("matplotlib.figure", "Figure", png)


def png(figure: Figure) -> tuple[str, dict[str, Any]] | None:
    """The figure as base64, at twice the pixels of its size on the page, for screens of today."""
    from IPython.core.pylabtools import retina_figure

    if figure.get_gid() == OURS:
        return flat_png(figure)
    drawn: tuple[str, dict[str, Any]] | None = retina_figure(figure, base64=True)
    return drawn


def flat_png(figure: Figure) -> tuple[str, dict[str, Any]]:
    """A small file, as base64, and its size on the page.

    Our pictures have few colours: with a table of 128 the file is less than a third as large, and so is the notebook.
    """
    from PIL import Image

    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=2 * figure.dpi)
    with Image.open(full) as image:
        width, height = image.size
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, format="PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode("ascii"), {"width": width // 2, "height": height // 2}
