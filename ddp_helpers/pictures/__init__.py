"""Pictures of ranks and machines. One file a picture; each function takes a Run or plain data and returns a Figure.

Nothing here touches pyplot; matplotlib is imported when the first picture is drawn.
"""

from __future__ import annotations

from .arrival import torn_lines
from .display import show_figures
from .palette import RANK_COLOURS, colour, ink
from .processes import processes
from .topology import topology

__all__ = ["RANK_COLOURS", "colour", "ink", "processes", "show_figures", "topology", "torn_lines"]
