"""batch(): batch size, learning rate and world size, and what stays equal when one of them changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pictures.batch_arithmetic import KEEP, Epoch, batch_arithmetic, epochs
from .explorer import Explorer, widgets

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def batch(samples: int = 64, ranks: int = 4, batch: int = 8, lr: float = 0.1, keep: str = KEEP[0]) -> Explorer:
    """Turn batch size, ranks and samples, and see steps an epoch, global batch and the rule of thumb for lr.

    >>> from ddp_helpers import explore
    >>> explore.batch(samples=64, ranks=2, batch=8)  # doctest: +SKIP

    Args:
        samples: of the dataset, 8 to 512.
        ranks: 1 to 8.
        batch: what one process uses, 1 to 64; `lr` is the learning rate that was found good with it.
        keep: what the ranks keep of it: "the batch of each rank", or "the global batch".

    The rule of thumb (lr grows with the global batch, after a warm-up) is that of P. Goyal et al., "Accurate, Large
    Minibatch SGD", 2017, arXiv:1706.02677, found with SGD with momentum on ImageNet. It is no law.
    """
    library = widgets()
    wide = {"style": {"description_width": "7em"}, "continuous_update": True}
    controls = {
        "samples": library.IntSlider(samples, 8, 512, description="samples", **wide),
        "ranks": library.IntSlider(ranks, 1, 8, description="ranks", **wide),
        "batch": library.IntSlider(batch, 1, 64, description="batch", **wide),
        "lr": library.FloatLogSlider(lr, min=-4, max=0, step=0.05, description="lr", readout_format=".2g", **wide),
        "keep": library.Dropdown(options=KEEP, value=keep, description="ranks keep", style=wide["style"]),
    }
    return Explorer(controls, _draw, numbers)


def _draw(samples: int, ranks: int, batch: int, lr: float, keep: str) -> Figure:
    return batch_arithmetic(samples, ranks, batch, keep, lr)


def numbers(samples: int, ranks: int, batch: int, lr: float, keep: str) -> str:
    """The numbers as a table, and a word on what has changed."""
    alone, together = epochs(samples, ranks, batch, keep)
    scaled = lr * together.global_batch / alone.global_batch
    rows = [
        ("", "one process", "one rank alone" if ranks == 1 else f"{ranks} ranks"),
        ("batch on each rank", alone.batch, together.batch),
        ("global batch", alone.global_batch, together.global_batch),
        ("steps an epoch", alone.steps, together.steps),
        ("samples an epoch", samples, samples + together.repeats),
        ("lr by rule of thumb", f"{lr:.2g}", f"{scaled:.2g}"),
    ]
    table = "\n".join(f"{name:<20}{first!s:>12}{second!s:>16}" for name, first, second in rows)
    return f"{table}\n\n{_remark(alone, together)}"


def _remark(alone: Epoch, together: Epoch) -> str:
    if together.global_batch == alone.global_batch and together.steps == alone.steps:
        return "Same global batch, same steps: the training of one process, so lr stays."
    if together.global_batch == alone.global_batch:
        return "Same global batch: lr stays."
    if together.global_batch < alone.global_batch:
        return f"{alone.global_batch} does not divide by {together.ranks}: the global batch is a little smaller."
    return (
        f"{together.global_batch / alone.global_batch:.3g} times the global batch: fewer, larger steps an epoch.\n"
        "Compare at equal steps or equal samples. A larger lr is a rule of thumb for the\nlarger batch, and wants a "
        "warm-up; DDP itself asks for none."
    )
