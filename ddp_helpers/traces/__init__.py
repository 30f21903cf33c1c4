"""Traces of torch.profiler, one a rank: read them, put them on one clock, and add up who did what when."""

from __future__ import annotations

from .align import Clock, Match, align, match
from .find import find_traces
from .read import Collective, Label, Trace, read_trace
from .shares import Share, mean_share, share
from .window import choose_windows

__all__ = [
    "Clock",
    "Collective",
    "Label",
    "Match",
    "Share",
    "Trace",
    "align",
    "choose_windows",
    "find_traces",
    "match",
    "mean_share",
    "read_trace",
    "share",
]
