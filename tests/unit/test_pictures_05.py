"""The map of samples: who reads which, in which step, what twice, and what nobody."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from picture_page import assert_texts_fit
from torch.utils.data import DistributedSampler

from ddp_helpers import pictures
from ddp_helpers.pictures.palette import ALARM, BOX, PAPER
from ddp_helpers.pictures.sampler_map import read_epochs

TEN = [[[0, 4, 8]], [[1, 5, 9]], [[2, 6, 0]], [[3, 7, 1]]]


def dealt(size: int, ranks: int, epochs: int = 1, **options: Any) -> list[list[list[int]]]:
    shares: list[list[list[int]]] = []
    for rank in range(ranks):
        sampler = DistributedSampler(range(size), ranks, rank, **options)
        shares.append([])
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            shares[-1].append(list(sampler))
    return shares


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def at(figure: Figure, wanted: str) -> list[tuple[float, float]]:
    return [text.get_position() for text in figure.axes[0].texts if text.get_text() == wanted]


def squares(figure: Figure, face: str = BOX, hatched: bool = False) -> list[tuple[float, float]]:
    """The middles of all squares of this look."""
    middles = []
    for collection in figure.axes[0].collections:
        assert isinstance(collection, PolyCollection)
        faces = collection.get_facecolor()
        if len(faces) and to_hex(faces[0]).upper() == face and bool(collection.get_hatch()) == hatched:
            middles += [tuple(path.vertices[:4].mean(0).round(3)) for path in collection.get_paths()]
    return middles


def rounded(places: list[tuple[float, float]]) -> set[tuple[float, float]]:
    return {(round(x, 3), round(y, 3)) for x, y in places}


EVERY_MAP = {
    "ten on four": lambda: pictures.sampler_map(TEN),
    "batches": lambda: pictures.sampler_map(dealt(10, 4, 3), batch_size=2),
    "dropped": lambda: pictures.sampler_map(dealt(39, 8, 2, drop_last=True), size=39),
    "larger than a page": lambda: pictures.sampler_map(dealt(1797, 10, 7), batch_size=64),
    "nothing read": lambda: pictures.sampler_map(dealt(3, 7, drop_last=True), size=3),
    "one rank": lambda: pictures.sampler_map(dealt(32, 1, 2), batch_size=5),
    "a small page, a long title": lambda: pictures.sampler_map([[[1], [1]], [[1], [1]]]),
    "everyone everything": lambda: pictures.sampler_map([[[[0, 1], [2, 3]]]] * 4),
    "large numbers twice": lambda: pictures.sampler_map([[[1700, 1701]], [[1701, 12345]]], size=1702),
}


@pytest.mark.parametrize("name", EVERY_MAP)
def test_no_text_leaves_the_page_and_no_two_texts_touch(name: str) -> None:
    figure = EVERY_MAP[name]()
    assert_texts_fit(figure)


def test_each_sample_stands_in_the_row_of_its_rank_and_the_column_of_its_step() -> None:
    figure = pictures.sampler_map(TEN)
    rows = [at(figure, f"rank {rank}")[0][1] for rank in range(4)]
    assert rows == sorted(rows, reverse=True)
    steps = [at(figure, str(step))[0][0] for step in range(3)]  # the heads of the columns are drawn first
    for rank, share in enumerate(TEN):
        for step, number in enumerate(share[0]):
            shown = f"{number}*" if (rank, step) in [(2, 2), (3, 2)] else str(number)
            assert (round(steps[step], 3), round(rows[rank], 3)) in rounded(at(figure, shown))
    assert len(squares(figure)) == 10


def test_a_sample_that_was_read_before_is_hatched_framed_and_starred() -> None:
    figure = pictures.sampler_map(TEN)
    again = rounded(at(figure, "0*") + at(figure, "1*"))
    assert rounded(squares(figure, PAPER, hatched=True)) == again
    frames = [c for c in figure.axes[0].collections if not len(c.get_facecolor())]
    assert [to_hex(frame.get_edgecolor()[0]).upper() for frame in frames] == [ALARM]
    assert texts(figure)[0] == "4 ranks: 2 read again"
    assert "hatched, *: read before in this epoch" in " ".join(texts(figure))


def test_what_nobody_read_stands_below_struck_through() -> None:
    figure = pictures.sampler_map(dealt(10, 4, shuffle=False, drop_last=True), size=10)
    assert texts(figure)[0] == "4 ranks: 2 not read"
    crossed = rounded(at(figure, "8") + at(figure, "9"))
    strokes = [line for line in figure.axes[0].lines if line.get_ydata()[0] != line.get_ydata()[1]]
    middles = [(sum(line.get_xdata()) / 2, sum(line.get_ydata()) / 2) for line in strokes]
    assert rounded(middles) == crossed and len(squares(figure)) == 8
    assert all(y < at(figure, "rank 3")[0][1] for _, y in crossed)


def test_when_each_is_read_once_nothing_is_marked() -> None:
    figure = pictures.sampler_map(dealt(8, 2, shuffle=True), batch_size=2)
    assert texts(figure)[0] == "2 ranks: each sample read once"
    assert not any("*" in text or "not read" in text for text in texts(figure))
    assert len(squares(figure)) == 8


def test_batches_are_columns_with_a_gap_between_them() -> None:
    figure = pictures.sampler_map([[[10, 11, 12, 13, 14]]], batch_size=2, size=0)
    x = [at(figure, str(number))[0][0] for number in range(10, 15)]
    gaps = [round(right - left, 2) for left, right in pairwise(x)]
    assert gaps[0] == gaps[2] < gaps[1] == gaps[3]
    assert at(figure, "step 0")[0][0] == pytest.approx((x[0] + x[1]) / 2)


def test_batches_as_the_loader_gave_them_and_lists_with_a_batch_size_are_the_same() -> None:
    flat = read_epochs([[[0, 2, 4]], [[1, 3, 5]]], 2, None)
    assert flat == read_epochs([[[[0, 2], [4]]], [[[1, 3], [5]]]], None, 6)


def test_epochs_stand_side_by_side_with_their_numbers() -> None:
    figure = pictures.sampler_map(dealt(10, 4, 3), batch_size=2, first_epoch=5)
    places = [at(figure, f"epoch {epoch}")[0] for epoch in (5, 6, 7)]
    assert len({y for _, y in places}) == 1 and [x for x, _ in places] == sorted(x for x, _ in places)
    assert texts(figure)[0] == "4 ranks: 2 read again in each epoch"


def test_epochs_that_are_all_the_same_do_not_sound_like_a_success() -> None:
    forgot = [[share] * 3 for (share,) in dealt(9, 3)]
    assert texts(pictures.sampler_map(forgot))[0] == "3 ranks: each sample read once, every epoch the same"


def test_a_run_brings_what_its_ranks_returned_as_seen() -> None:
    run: Any = SimpleNamespace(ranks=[SimpleNamespace(returned={"seen": epochs}) for epochs in TEN])
    assert texts(pictures.sampler_map(run)) == texts(pictures.sampler_map(TEN))
    run.ranks[1].returned = {}
    with pytest.raises(ValueError, match="rank 1 returned no `seen`: run the script with --return seen"):
        pictures.sampler_map(run)


def test_the_later_reading_is_the_repeated_one_as_the_sampler_deals() -> None:
    first = read_epochs(dealt(3, 7, shuffle=False), None, None)[0]
    assert first.again == {(rank, 0, 0) for rank in (3, 4, 5, 6)} and not first.dropped


def test_what_has_no_room_is_said() -> None:
    figure = EVERY_MAP["larger than a page"]()
    note = "drawn are the first 6 of 7 epochs, 8 of 10 ranks, 22 of 180 samples of a rank"
    assert note in " ".join(texts(figure))
    assert texts(figure)[0] == "10 ranks: 3 read again in each epoch"  # counted are all


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        pictures.sampler_map([])
    with pytest.raises(ValueError, match="different numbers of epochs: 1, 2"):
        pictures.sampler_map([[[0]], [[1], [2]]])
