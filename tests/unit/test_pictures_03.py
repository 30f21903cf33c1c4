"""The pictures of lesson 03: ranks that drift, and an epoch cut into steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from picture_page import assert_texts_fit

from ddp_helpers import pictures
from ddp_helpers.pictures.batch_arithmetic import KEEP, Epoch, epochs
from ddp_helpers.pictures.drift import apart, spread

TOGETHER = [[0.0, 0.5, 0.2]] * 3
APART = [[0.0, 0.5, 0.9], [0.0, 0.4, 0.1]]


def run_of(rows: list[list[float]], name: str = "track") -> Any:
    return SimpleNamespace(ranks=[SimpleNamespace(returned={name: row}) for row in rows])


EVERY_PICTURE = {
    "together": lambda: pictures.drift(TOGETHER),
    "two panels and a truth": lambda: pictures.drift({"silent": APART, "averaged": TOGETHER}, alone=TOGETHER[0]),
    "eight ranks apart": lambda: pictures.drift([[0.0, float(rank)] for rank in range(8)]),
    "eight ranks close together": lambda: pictures.drift([[0.0, 10.0 + rank / 20] for rank in range(8)]),
    "constant": lambda: pictures.drift([[1.0, 1.0]] * 2),
    "epoch": lambda: pictures.batch_arithmetic(),
    "epoch with the global batch": lambda: pictures.batch_arithmetic(64, 4, 8, KEEP[1]),
    "epoch of many steps": lambda: pictures.batch_arithmetic(512, 8, 1),
    "epoch with repeats": lambda: pictures.batch_arithmetic(100, 8, 6, lr=0.0123),
    "epoch with many repeats": lambda: pictures.batch_arithmetic(505, 8, 63, lr=0.000123),
    "one rank": lambda: pictures.batch_arithmetic(64, 1, 8),
    "fewer samples than a batch": lambda: pictures.batch_arithmetic(8, 8, 64),
}


def texts(figure: Figure) -> list[Text]:
    return [text for axes in figure.axes for text in axes.texts if text.get_text()]


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in texts(figure)]


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_no_text_leaves_the_page_and_no_two_texts_touch(name: str) -> None:
    figure = EVERY_PICTURE[name]()
    assert_texts_fit(figure)


# ---- drift ----------------------------------------------------------------------------------------------------------


def lines(axes: Axes) -> dict[str, list[float]]:
    return {to_hex(line.get_color()).upper(): [float(y) for y in line.get_ydata()] for line in axes.lines}


def test_each_rank_is_a_line_in_its_colour_with_a_marker_of_its_own() -> None:
    axes = pictures.drift(run_of(APART)).axes[1]
    assert lines(axes) == {pictures.colour(0): APART[0], pictures.colour(1): APART[1]}
    assert len({line.get_marker() for line in axes.lines}) == 2


def test_ranks_that_agree_are_all_seen_and_named_once() -> None:
    figure = pictures.drift(TOGETHER)
    widths = [line.get_linewidth() for line in figure.axes[1].lines]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 3
    assert "ranks 0–2" in words(figure) and "this weight: together after 2 steps" in words(figure)
    assert "rank 0 is drawn wide, so that others can be seen on it" in words(figure)


def test_ranks_that_drift_are_named_apart_at_their_ends() -> None:
    figure = pictures.drift(APART)
    page, panel = figure.axes
    for leader, rank in zip(page.lines, (1, 0), strict=True):  # from below
        assert leader.get_gid() == f"rank {rank}" and leader.get_gid() in words(figure)
        at_end = panel.transData.transform((2, APART[rank][-1]))[1]
        assert page.transData.transform((0, leader.get_ydata()[0]))[1] == pytest.approx(at_end)
    assert "this weight: 0.8 apart after 2 steps" in words(figure)


def test_panels_stand_side_by_side_with_one_scale_and_the_truth_dashed_in_each() -> None:
    figure = pictures.drift({"silent": run_of(APART), "averaged": TOGETHER}, alone=[0.0, 0.5, 0.2])
    _, left, right = figure.axes
    assert left.get_position().x1 < right.get_position().x0 and left.get_ylim() == right.get_ylim()
    for axes in (left, right):
        dashed = [line for line in axes.lines if line.is_dashed()]
        assert [list(line.get_ydata()) for line in dashed] == [[0.0, 0.5, 0.2]]
    assert {"silent", "averaged"} <= set(words(figure))
    assert left.get_ylabel() == "value of the weight" and not right.get_ylabel()
    assert words(figure).count("one process") == 1
    assert words(figure).count("ranks 0–2 and\none process") == 1  # they end at one place, and share a label


def test_another_returned_name_can_be_drawn() -> None:
    assert lines(pictures.drift(run_of([[1.0, 2.0]], "head"), "head").axes[1]) == {pictures.colour(0): [1.0, 2.0]}


def test_rows_of_different_length_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"of one length; these have \[1, 2\]"):
        pictures.drift([[1.0, 2.0], [1.0]])


def test_how_far_apart_is_said_in_words() -> None:
    assert apart([[0, 1.0], [0, 1.5]]) == "0.5 apart after 1 step"
    assert apart([[0, 1, 1.0], [0, 1, 1 + 1e-7]]) == "together after 2 steps"


def test_labels_that_would_touch_are_moved_apart_and_stay_below_the_top() -> None:
    assert spread([1.0, 1.1, 3.0], 0.5, 9.0) == [1.0, 1.5, 3.0]
    assert spread([2.8, 2.9, 3.0], 0.5, 3.0) == [2.0, 2.5, 3.0]


# ---- an epoch, cut into steps ---------------------------------------------------------------------------------------


def areas(figure: Figure) -> dict[str, float]:
    """The drawn area of each colour, gaps between the steps included."""
    sums: dict[str, float] = {}
    for bars in figure.axes[0].collections:
        for path in bars.get_paths():
            box = path.get_extents()
            sums[bars.get_gid()] = sums.get(bars.get_gid(), 0) + box.width * box.height
    return sums


@pytest.mark.parametrize("keep", KEEP)
def test_all_ranks_do_the_work_of_one_process(keep: str) -> None:
    alone = areas(pictures.batch_arithmetic(64, 1, 8, keep))
    assert alone.keys() == {"rank 0"}  # drawn twice: above as one process, below as one rank
    shared = areas(pictures.batch_arithmetic(64, 4, 8, keep))
    assert shared["rank 1"] == pytest.approx(shared["rank 3"])
    whole = shared["rank 0"] - shared["rank 1"]  # rank 0 is also the one process above
    assert whole == pytest.approx(4 * shared["rank 1"], rel=0.1)


def test_the_columns_are_the_steps() -> None:
    figure = pictures.batch_arithmetic(64, 4, 8)
    columns = [
        sum(len(bars.get_paths()) for bars in figure.axes[0].collections if bars.get_gid() == f"rank {r}")
        for r in (0, 1)
    ]
    assert columns == [8 + 2, 2]
    assert "steps" in words(figure)
    assert "4 ranks take 2 steps an epoch, one process takes 8" in words(figure)
    assert "4 ranks: 2 steps of 4 × 8 = 32" in words(figure)


def test_a_learning_rate_is_said_for_both_lanes() -> None:
    assert {"lr 0.1", "rule of thumb: lr 0.4"} <= set(words(pictures.batch_arithmetic(64, 4, 8, lr=0.1)))
    assert words(pictures.batch_arithmetic(64, 4, 8, KEEP[1], lr=0.1)).count("lr 0.1") == 2


def test_a_kept_global_batch_keeps_the_steps() -> None:
    alone, together = epochs(64, 4, 8, KEEP[1])
    assert (alone.steps, together.steps, together.batch, together.global_batch) == (8, 8, 2, 8)


def test_an_epoch_is_dealt_as_torchs_sampler_and_loader_deal_it() -> None:
    from torch.utils.data import DataLoader, DistributedSampler

    for samples, ranks, batch in ((10, 4, 2), (64, 4, 8), (100, 8, 6), (7, 3, 5)):
        dealt = [
            DataLoader(range(samples), batch, sampler=DistributedSampler(range(samples), ranks, r))
            for r in range(ranks)
        ]
        sizes = {tuple(len(step) for step in loader) for loader in dealt}
        epoch = Epoch(samples, ranks, batch)
        assert sizes == {tuple(epoch.step_sizes())}
        assert epoch.repeats == sum(map(sum, sizes)) * ranks - samples


def test_repeats_and_a_smaller_last_step_are_said() -> None:
    assert "8 ranks: 3 steps of 8 × 6 = 48, the last of 8; 4 samples dealt twice" in words(
        pictures.batch_arithmetic(100, 8, 6)
    )


def test_what_cannot_be_dealt_is_said() -> None:
    with pytest.raises(ValueError, match="A global batch of 4 has not one sample for each of 8 ranks"):
        pictures.batch_arithmetic(64, 8, 4, KEEP[1])
    with pytest.raises(ValueError, match="is none of"):
        pictures.batch_arithmetic(keep="everything")
