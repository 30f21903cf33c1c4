"""Explorers: a picture with knobs to turn. One file an explorer; each function returns an Explorer, which shows itself.

ipywidgets and matplotlib are imported when the first explorer is made.
"""

from __future__ import annotations

from .batch import batch
from .collectives import collectives
from .explorer import Explorer
from .samplers import samplers
from .scaling import scaling

__all__ = ["Explorer", "batch", "collectives", "samplers", "scaling"]
