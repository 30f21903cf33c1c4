"""The model of a step on N ranks, its fit, and what it makes of published figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ddp_helpers import scaling
from ddp_helpers.scaling import Link, Work
from ddp_helpers.scaling.fit import least_log_squares, least_squares

FIGURES = Path(__file__).parents[2] / "data" / "published_figures.csv"
LINK = Link(latency=1e-3, bandwidth=1e6)
WORK = Work(fixed=0.01, per_sample=0.002, size=1e5)


# ---- the model ------------------------------------------------------------------------------------------------------


def by_hand(ranks: int, size: float) -> float:
    """A ring, played message by message: N - 1 rounds of reduce-scatter and as many of all-gather."""
    seconds = 0.0
    for _ in ("reduce-scatter", "all-gather"):
        for _ in range(ranks - 1):
            seconds += LINK.latency + size / ranks / LINK.bandwidth
    return seconds


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 100])
def test_communication_is_that_of_a_ring_played_message_by_message(ranks: int) -> None:
    assert scaling.communication(LINK, ranks, 1e5) == pytest.approx(by_hand(ranks, 1e5))


def test_one_rank_communicates_nothing_and_is_its_own_measure() -> None:
    assert scaling.step(WORK, LINK, 1, 10) == pytest.approx(0.03)
    assert scaling.speed_up(WORK, LINK, 1, 10) == scaling.speed_up(WORK, LINK, 1, 10, strong=True) == 1


def test_backward_hides_a_share_of_the_communication_and_no_more_than_all_of_it() -> None:
    half = Work(WORK.fixed, WORK.per_sample, WORK.size, backward=0.5, overlap=0.5)
    everything = Work(1.0, 0, WORK.size, backward=0.5, overlap=1)
    assert scaling.exposed(half, LINK, 2, 10) == pytest.approx(by_hand(2, 1e5) - 0.03 / 4)
    assert scaling.exposed(everything, LINK, 2, 10) == 0 and scaling.step(everything, LINK, 2, 10) == 1


def test_weak_scaling_keeps_the_batch_of_a_rank_and_strong_scaling_shares_it() -> None:
    weak = 4 * 40 / scaling.step(WORK, LINK, 4, 40)  # samples a second
    strong = 40 / scaling.step(WORK, LINK, 4, 10)
    alone = 40 / scaling.step(WORK, LINK, 1, 40)
    assert scaling.speed_up(WORK, LINK, 4, 40) == pytest.approx(weak / alone)
    assert scaling.speed_up(WORK, LINK, 4, 40, strong=True) == pytest.approx(strong / alone)
    assert scaling.efficiency(WORK, LINK, 4, 40) == pytest.approx(weak / alone / 4)


def test_the_crossover_is_the_first_number_of_ranks_where_communication_takes_longer() -> None:
    for strong in (False, True):
        found = scaling.crossover(WORK, LINK, 100, strong)
        assert found is not None
        for ranks, longer in ((found - 1, False), (found, True)):
            compute = WORK.compute(100 / ranks if strong else 100)
            assert (scaling.communication(LINK, ranks, WORK.size) > compute) == longer
    assert scaling.crossover(WORK, Link(1e-9, 1e12), 100) is None


def test_strong_scaling_ends_where_each_rank_has_one_sample() -> None:
    work, late = Work(0.0, 0.002, 1e5), Link(1e-5, 1e8)  # it takes longer only than the work of less than a sample
    assert scaling.communication(late, 20, work.size) > work.compute(10 / 20)
    assert scaling.crossover(work, late, 10, strong=True) is None
    assert (scaling.largest(10, strong=True), scaling.largest(10, strong=False)) == (10, 1024)
    assert scaling.speed_up(WORK, LINK, 100, 100, strong=True) > 0
    with pytest.raises(ValueError, match="101 ranks cannot share 100 samples"):
        scaling.speed_up(WORK, LINK, 101, 100, strong=True)


# ---- the fit --------------------------------------------------------------------------------------------------------


def measured(noise: float, seed: int = 1) -> dict[int, tuple[list[float], list[float]]]:
    generator, sizes = np.random.default_rng(seed), [1e2, 1e3, 1e4, 1e5, 1e6]
    return {
        ranks: (
            sizes,
            [scaling.communication(LINK, ranks, s) * (1 + noise * generator.uniform(-1, 1)) for s in sizes],
        )
        for ranks in (2, 4)
    }


def test_without_noise_latency_and_bandwidth_come_back() -> None:
    fitted = scaling.fit_link(measured(0))
    assert (fitted.best.latency, fitted.best.bandwidth) == pytest.approx((1e-3, 1e6))
    assert fitted.error_percent == pytest.approx(0, abs=1e-6)


def test_small_messages_count_as_much_as_large_ones() -> None:
    """Unweighted, the error of the largest would be as large as the smallest itself."""
    best = scaling.fit_link(measured(0.1)).best
    assert best.latency == pytest.approx(1e-3, rel=0.15) and best.bandwidth == pytest.approx(1e6, rel=0.15)


@pytest.mark.parametrize("noise", [0.1, 0.6])
def test_the_truth_is_mostly_within_the_range_and_the_fit_leans_to_no_side(noise: float) -> None:
    """Ten measurements and two unknowns: of 90 in 100 hoped for, 80 to 85 come out, however large the noise."""
    work = scaling.fit_work([1, 10, 100, 200], [WORK.compute(n) for n in (1, 10, 100, 200)], WORK.size)
    truth, hits, factors = scaling.communication(LINK, 64, 1e5), 0, []
    for seed in range(40):
        dealt = np.random.default_rng(seed)
        exact = measured(0)
        noisy = {n: (sizes, [t * np.exp(noise * dealt.normal()) for t in times]) for n, (sizes, times) in exact.items()}
        link = scaling.fit_link(noisy)
        found = scaling.predicted(work, link, lambda w, c: scaling.communication(c, 64, 1e5))
        assert found.low <= found.value <= found.high
        hits += found.low <= truth <= found.high
        factors.append(found.value / truth)
    assert 30 <= hits <= 40
    assert abs(np.log(np.median(factors))) < noise / 3


def test_five_batches_are_few_so_that_the_range_of_compute_is_too_narrow() -> None:
    """The lesson says so: the truth lies outside more often than one time in ten."""
    batches, hits = (16, 32, 64, 128, 256), 0
    link = scaling.fit_link(measured(0))
    for seed in range(40):
        noise = np.exp(0.1 * np.random.default_rng(seed).normal(size=5))
        work = scaling.fit_work(batches, [WORK.compute(n) * e for n, e in zip(batches, noise, strict=True)], WORK.size)
        found = scaling.predicted(work, link, lambda w, c: w.compute(256))
        hits += found.low <= WORK.compute(256) <= found.high
    assert 20 <= hits < 36


def test_twice_the_time_weighs_as_much_as_half_of_it() -> None:
    times = np.array([0.5, 2.0])
    assert least_log_squares(np.ones((2, 1)), times) == pytest.approx([1.0], rel=1e-3)  # in percent it would be 0.59


def test_more_noise_makes_a_wider_range() -> None:
    work = scaling.fit_work([1, 10, 100], [WORK.compute(n) for n in (1, 10, 100)], WORK.size)
    widths = []
    for noise in (0.02, 0.3):
        found = scaling.predicted(
            work, scaling.fit_link(measured(noise)), lambda w, c: scaling.communication(c, 8, 1e4)
        )
        widths.append(found.high - found.low)
    assert widths[1] > 3 * widths[0]


def test_a_fit_without_a_measurement_to_spare_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 3 times above 0 or more, not 2"):
        scaling.fit_link({2: ([1, 2], [1.0, 2.0])})
    with pytest.raises(ValueError, match="above 0"):
        scaling.fit_work([1, 2, 3], [1.0, 0.0, 2.0], 8)


def test_no_unknown_falls_below_zero() -> None:
    falling = scaling.fit_work([1, 10, 100], [0.03, 0.02, 0.01], 8).best  # noise: a larger batch takes less time
    assert falling.fixed > 0 and falling.per_sample == 0
    link = scaling.fit_link({2: ([1e3, 1e4, 1e5], [1e-4, 1e-3, 1.1e-2])}).best  # the line would begin below zero
    assert link.latency > 0 and link.bandwidth > 0


def test_least_squares_finds_no_better_point_nearby() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        matrix, times = generator.normal(size=(6, 3)), generator.uniform(1, 2, 6)

        def miss(x: np.ndarray, matrix: np.ndarray = matrix, times: np.ndarray = times) -> float:
            return float((((matrix @ x) / times - 1) ** 2).sum())

        best = least_squares(matrix, times)
        assert (best >= 0).all()
        nearby = np.maximum(0, best + generator.normal(scale=0.05, size=(200, 3)))
        assert min(map(miss, nearby)) >= miss(best) - 1e-9


def test_the_overlap_that_was_put_in_comes_out() -> None:
    truth = Work(0.2, 0.002, 1e5, overlap=0.3)
    seconds = scaling.step(truth, LINK, 2, 10)
    plain = Work(0.2, 0.002, 1e5)
    assert scaling.overlap_of(plain, LINK, 2, 10, seconds) == pytest.approx(0.3)
    assert scaling.overlap_of(plain, LINK, 2, 10, 100.0) == 0
    assert scaling.overlap_of(WORK, LINK, 2, 1, WORK.compute(1)) == 1


# ---- published figures ----------------------------------------------------------------------------------------------


def published(topic: str) -> scaling.Series:
    return scaling.series(scaling.read_rows(FIGURES, topic))


def test_each_unit_becomes_the_time_of_a_step() -> None:
    images, minutes, tokens = map(published, ("scaling_ddp", "scaling_nodes", "scaling_llm"))
    assert images.gpus == (1, 4, 8, 16, 32)
    assert images.seconds[-1] / images.seconds[0] == pytest.approx(367 * 32 / 10917)
    assert minutes.seconds[1] / minutes.seconds[0] == pytest.approx(89.27 * 4 / 342.2)
    assert tokens.seconds[-1] / tokens.seconds[0] == pytest.approx(40150 / 15700)
    with pytest.raises(ValueError, match="s/epoch"):
        scaling.series([{**scaling.read_rows(FIGURES, "scaling_ddp")[0], "unit": "s/epoch"}])
    with pytest.raises(ValueError, match="how many GPUs"):
        scaling.series(scaling.read_rows(FIGURES, "loader_bound"))


def test_rows_that_the_fit_has_not_seen_are_predicted_from_those_it_has() -> None:
    checks = scaling.held_out(published("scaling_amp"), until=8)
    assert [c.fitted for c in checks] == [True, True, True, False, False]
    assert all(abs(c.error_percent) < 0.5 for c in checks[:3])  # three unknowns, three rows
    later = published("scaling_amp")
    changed = scaling.Series(later.name, later.source, later.gpus, (*later.seconds[:3], 9.0, 9.0), later.notes)
    again = scaling.held_out(changed, until=8)
    assert [c.predicted for c in again] == [c.predicted for c in checks]
    assert again[-1].error_percent < -50 and not again[-1].within


@pytest.mark.parametrize("kind", ["bytes", "latency"])
def test_a_series_of_the_model_is_predicted_exactly_and_lies_at_the_range_s_end(kind: str) -> None:
    gpus = (1, 4, 8, 64, 512)
    lost = [0.1 * scaling.ring_bytes(n) if kind == "bytes" else 0.001 * scaling.ring_messages(n) for n in gpus]
    figures = scaling.Series("made", "", gpus, tuple(1 + x for x in lost), ("",) * 5)
    for check in scaling.held_out(figures, until=8)[3:]:
        assert check.error_percent == pytest.approx(0, abs=1e-6) and check.within
        assert check.measured == pytest.approx(check.low if kind == "bytes" else check.high)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="up to 4 GPUs there are 2 of 5 rows"):
        scaling.held_out(published("scaling_ddp"), until=4)
    with pytest.raises(ValueError, match="one to be predicted"):
        scaling.held_out(published("scaling_ddp"), until=64)


def test_a_link_from_two_published_all_reduces_predicts_the_ones_between() -> None:
    rows = [row for row in scaling.read_rows(FIGURES, "all_reduce_busbw") if "H200" in row["hardware"]]
    link, checks = scaling.link_from_bus_bandwidth(rows, ranks=8)
    assert [size for size, *_ in checks] == [2**power for power in range(15, 35)]
    assert checks[0][1] == pytest.approx(1.75 * 2**15 / 1.44e9)
    for size, measured, predicted in checks:
        assert predicted == pytest.approx(scaling.communication(link, 8, size))
        assert abs(predicted / measured - 1) < (1e-6 if size in (2**15, 2**34) else 0.3)
    assert sorted({row["note"] for row in rows}) == ["NCCL algorithm NVLS", "NCCL algorithm Ring"]
