"""What the tests of all pictures ask of a page."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ddp_helpers.pictures.palette import PAPER


def assert_texts_fit(figure: Figure) -> None:
    """The page is white, no text leaves it, and no two texts touch. (By arrays: a large map has thousands.)"""
    assert to_hex(figure.get_facecolor()).upper() == PAPER
    figure.canvas.draw()
    texts = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    words = [text.get_text() for text in texts]
    boxes = np.array([text.get_window_extent().extents for text in texts]).reshape(-1, 4)
    low, high = boxes[:, :2], boxes[:, 2:]
    page = figure.bbox.extents
    outside = ((low < page[:2]) | (high > page[2:])).any(1)
    assert not outside.any(), [words[number] for number in outside.nonzero()[0]]
    touching = ((low[:, None] <= high) & (low <= high[:, None])).all(-1)
    pairs = np.argwhere(np.triu(touching, 1))
    assert not pairs.size, [(words[one], words[other]) for one, other in pairs]
