"""Pictures of ranks and machines. One file a picture; each function takes a Run or plain data and returns a Figure.

Nothing here touches pyplot; matplotlib is imported when the first picture is drawn.
"""

from __future__ import annotations

from .arrival import torn_lines
from .batch_arithmetic import batch_arithmetic
from .buckets import buckets
from .calls_made import calls_made
from .collective import collective
from .display import show_figures
from .drift import drift
from .gradient_histogram import gradient_histogram
from .held_out import held_out
from .loss_scale import loss_scale
from .memory_per_rank import memory_per_rank
from .message_cost import fit_cost, message_cost
from .number_formats import number_formats
from .palette import RANK_COLOURS, colour, ink
from .parallel_step import parallel_step
from .pipeline import pipeline
from .processes import processes
from .restarts import restarts
from .sampler_map import sampler_map
from .scaling_curve import scaling_curve
from .speed_up import speed_up
from .step_parts import step_parts
from .step_times import step_times
from .timeline import Timeline, timeline
from .topology import topology
from .which_parallel import which_parallel

__all__ = [
    "RANK_COLOURS",
    "Timeline",
    "batch_arithmetic",
    "buckets",
    "calls_made",
    "collective",
    "colour",
    "drift",
    "fit_cost",
    "gradient_histogram",
    "held_out",
    "ink",
    "loss_scale",
    "memory_per_rank",
    "message_cost",
    "number_formats",
    "parallel_step",
    "pipeline",
    "processes",
    "restarts",
    "sampler_map",
    "scaling_curve",
    "show_figures",
    "speed_up",
    "step_parts",
    "step_times",
    "timeline",
    "topology",
    "torn_lines",
    "which_parallel",
]
