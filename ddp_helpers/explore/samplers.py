"""samplers(): who reads which sample, for any dataset, world and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pictures.sampler_map import read_epochs, sampler_map
from .explorer import Explorer, widgets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SAMPLES = 32  # more would not be drawn within 100 ms


def samplers(size: int = 10, ranks: int = 4, batch_size: int = 2, shuffle: bool = True) -> Explorer:
    """Turn the knobs of torch's DistributedSampler, and see two epochs, one after the other.

    >>> from ddp_helpers import explore
    >>> explore.samplers(size=10, ranks=4)  # doctest: +SKIP

    Args:
        size: samples in the dataset, 1 to 32.
        ranks: 1 to 8.
        batch_size: of each rank, 1 to 8.
        shuffle: the sampler's; so is `drop_last`, which begins as False.

    The other controls: `epoch`, the first of the two that are shown, and `set_epoch`, whether the sampler is told.
    """
    library = widgets()
    wide = {"style": {"description_width": "6em"}, "continuous_update": True}
    tick = {"indent": False, "layout": library.Layout(width="9em", margin="2px 2px 2px 2em")}
    controls = {
        "size": library.IntSlider(size, 1, MOST_SAMPLES, description="samples", **wide),
        "ranks": library.IntSlider(ranks, 1, 8, description="ranks", **wide),
        "batch_size": library.IntSlider(batch_size, 1, 8, description="batch_size", **wide),
        "epoch": library.IntSlider(0, 0, 9, description="epoch", **wide),
        "shuffle": library.Checkbox(shuffle, description="shuffle", **tick),
        "drop_last": library.Checkbox(False, description="drop_last", **tick),
        "set_epoch": library.Checkbox(True, description="set_epoch", **tick),
    }
    return Explorer(controls, _draw, _in_words)


def _read(size: int, ranks: int, epoch: int, shuffle: bool, drop_last: bool, set_epoch: bool) -> list[list[list[int]]]:
    """What each rank reads in that epoch and the next, by torch's own sampler."""
    from torch.utils.data import DistributedSampler

    read = []
    for rank in range(ranks):
        sampler = DistributedSampler(range(size), ranks, rank, shuffle=shuffle, drop_last=drop_last)
        of_rank = []
        for number in (epoch, epoch + 1):
            if set_epoch:
                sampler.set_epoch(number)
            of_rank.append([int(index) for index in sampler])
        read.append(of_rank)
    return read


def _draw(
    size: int, ranks: int, batch_size: int, epoch: int, shuffle: bool, drop_last: bool, set_epoch: bool
) -> Figure:
    read = _read(size, ranks, epoch, shuffle, drop_last, set_epoch)
    return sampler_map(read, batch_size=batch_size, size=size, first_epoch=epoch)


def _in_words(
    size: int, ranks: int, batch_size: int, epoch: int, shuffle: bool, drop_last: bool, set_epoch: bool
) -> str:
    """The numbers behind the picture, and the code that gives it."""
    read = _read(size, ranks, epoch, shuffle, drop_last, set_epoch)
    first, second = read_epochs([list(of_rank) for of_rank in read], batch_size, size)
    steps = len(first.ranks[0])
    together = sum(len(batches[0]) for batches in first.ranks if batches)
    again, dropped = len(first.again), len(first.dropped)
    lines = [
        f"sampler = DistributedSampler(dataset, shuffle={shuffle}, drop_last={drop_last})",
        f"loader = DataLoader(dataset, batch_size={batch_size}, sampler=sampler)",
        "sampler.set_epoch(epoch)  # before each epoch" if set_epoch else "# set_epoch is not called",
        "",
        f"steps an epoch: {steps} · samples per step, all ranks together: {together} · "
        f"again: {again} · not read: {dropped}",
        f"epoch {epoch + 1} reads {'the same as' if first == second else 'other batches than'} epoch {epoch}",
    ]
    return "\n".join(lines)
