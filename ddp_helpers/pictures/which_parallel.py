"""Which kind of parallel training: a chart of questions, to be read from the top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .canvas import box, canvas, write
from .palette import FAINT, LINE, TEXT, colour, ink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A question, and what to do where the answer is yes; where it is no, the next question comes.
QUESTIONS = (
    ("Do parameters, gradients, optimizer state\nand activations fit on one GPU?", "DDP", "each rank has it all"),
    ("Would they fit without the optimizer state\nof the other ranks?", "DDP + ZeRO-1", "ZeroRedundancyOptimizer"),
    ("Would one layer at a time fit,\nand the rest in pieces?", "FSDP", "fully_shard"),
    ("Is a single layer too wide, and are there fast\nlinks between the GPUs of a node?", "tensor parallel",
     "parallelize_module, within a node"),
    ("Are there many equal layers,\nand many micro-batches?", "pipeline", "torch.distributed.pipelining"),
)  # fmt: skip
OTHERWISE = "Combine: tensor parallel in the node, pipeline or FSDP across nodes, DDP around it."
HEIGHT, STEP, WIDE, RIGHT = 6.9, 1.1, 4.1, 5.6


def which_parallel() -> Figure:
    """Draw the chart.

    pictures.which_parallel()
    """
    figure, axes = canvas(9.6, HEIGHT, "Which kind of parallel? Take the first that fits")
    for number, (question, name, how) in enumerate(QUESTIONS):
        y = HEIGHT - 1.35 - number * STEP
        box(axes, 0.3, y, WIDE, 0.72)
        write(axes, 0.3 + WIDE / 2, y + 0.36, question, size=9.5)
        arrow = {"arrowstyle": "-|>", "color": LINE, "lw": 1.4}
        axes.annotate("", (RIGHT, y + 0.36), (0.3 + WIDE, y + 0.36), arrowprops=arrow)
        write(axes, (0.3 + WIDE + RIGHT) / 2, y + 0.5, "yes", size=9, colour=FAINT)
        box(axes, RIGHT, y, 3.7, 0.72, face=colour(number), edge=TEXT)
        write(axes, RIGHT + 1.85, y + 0.49, name, size=11, weight="bold", colour=ink(number))
        write(axes, RIGHT + 1.85, y + 0.2, how, size=9, colour=ink(number))
        axes.annotate("", (0.3 + WIDE / 2, y - STEP + 0.72), (0.3 + WIDE / 2, y), arrowprops=arrow)
        write(axes, 0.3 + WIDE / 2 + 0.25, y - (STEP - 0.72) / 2, "no", size=9, colour=FAINT)
    y = HEIGHT - 1.35 - len(QUESTIONS) * STEP
    box(axes, 0.3, y + 0.22, 9.0, 0.5)
    write(axes, 4.8, y + 0.47, OTHERWISE, size=9.5)
    return figure
