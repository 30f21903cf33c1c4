"""Timelines: exact arithmetic on small traces made here, errors, and what is drawn."""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from picture_page import assert_texts_fit

from ddp_helpers import pictures

MADE = Path(__file__).parent / "traces"
MAIN, LOOP, OTHER_LOOP = 1, 2, 3  # threads: Python's, and gloo's two


def event(category: str, name: str, start: float, end: float, thread: int = MAIN, **about: Any) -> dict[str, Any]:
    """Times in ms."""
    when = {"ts": start * 1e3, "dur": (end - start) * 1e3}
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": thread, "args": about, **when}


def op(start: float, end: float, name: str = "aten::mm", thread: int = MAIN) -> dict[str, Any]:
    return event("cpu_op", name, start, end, thread)


def label(name: str, start: float, end: float) -> dict[str, Any]:
    return event("user_annotation", name, start, end)


def reduce(start: float, end: float, numbers: int = 1000, thread: int = LOOP, name: str = "all_reduce") -> Any:
    about = {"Input Dims": [[numbers]], "Input type": ["float"]}
    return event("user_annotation", f"gloo:{name}", start, end, thread, **about)


def write(folder: Path, *ranks: list[Any], hosts: str = "", shifts: Any = None, world_size: int = 0) -> str:
    """A trace for each list of events; the pattern that they fit."""
    for rank, events in enumerate(ranks):
        shift = shifts[rank] if shifts else 0
        moved = [{**one, "ts": one["ts"] + shift * 1e3} for one in events]
        raw = {
            "distributedInfo": {"rank": rank, "world_size": world_size or len(ranks)},
            "host_name": hosts[rank] if hosts else "one",
            "baseTimeNanoseconds": 1790857026000000000,
            "traceEvents": [{"ph": "M", "name": "process_name", "pid": 9, "args": {}}, *moved],
        }
        (folder / f"trace_{rank}.json").write_text(json.dumps(raw), encoding="utf-8")
    return str(folder / "trace_*.json")


EARLY = [label("step", 0, 20), op(0, 10), reduce(6, 14), op(15, 20)]
LATE = [label("step", 0, 22), op(0, 12), reduce(9, 14.5), op(16, 22)]


# -- arithmetic ------------------------------------------------------------------------------------------------------


def test_the_figures_of_two_ranks_are_exact(tmp_path: Path) -> None:
    shown = pictures.timeline(write(tmp_path, EARLY, LATE), between="step")
    first, second = shown.ranks
    assert (first.step_ms, first.compute_ms, first.communication_ms) == pytest.approx((20, 15, 8))
    assert (first.overlap_ms, first.overlap_percent, first.exposed_ms) == pytest.approx((4, 50, 4))
    assert (first.waiting_ms, first.data_ms, first.other_ms) == pytest.approx((3, 0, 1))
    assert (second.compute_ms, second.overlap_ms, second.waiting_ms) == pytest.approx((18, 3, 0))
    assert shown.mean.overlap_ms == pytest.approx(3.5)
    assert shown.mean.overlap_percent == pytest.approx(100 * 7 / 13.5)
    assert [(c.name, c.size, c.start, c.end) for c in shown.collectives[0]] == [("all_reduce", 4000, 6, 14)]


def test_two_collectives_at_once_count_once(tmp_path: Path) -> None:
    events = [op(0, 10), reduce(2, 8), reduce(4, 12, 2000, OTHER_LOOP), op(20, 21)]
    share = pictures.timeline(write(tmp_path, events, events)).ranks[0]
    assert (share.communication_ms, share.overlap_ms) == pytest.approx((10, 8))


def test_wrappers_launches_and_labels_are_no_compute_and_an_operator_counts_whole(tmp_path: Path) -> None:
    events = [
        label("backward", 0, 30),
        op(0, 20, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
        op(0, 20, "torch::autograd::AccumulateGrad"),
        op(0, 30, "AddmmBackward0"),
        op(2, 9, "aten::linear"),
        op(3, 4, "aten::t"),
        op(5, 6, "c10d::allreduce_"),
        op(8, 12, thread=7),
        op(10, 11, "_c10d_functional::wait_tensor", thread=7),
        reduce(5, 10),
    ]
    share = pictures.timeline(write(tmp_path, events)).ranks[0]
    assert share.compute_ms == pytest.approx(8)  # 2 to 5, 6 to 10, 11 to 12; from 9 on on thread 7
    assert share.overlap_ms == pytest.approx(4)


def test_what_a_thread_computes_while_it_fetches_data_is_data(tmp_path: Path) -> None:
    loader = label("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 5)
    events = [loader, op(1, 4, "aten::stack"), op(6, 8), label("load", 8, 9), label("data", 9, 12), op(9, 10)]
    share = pictures.timeline(write(tmp_path, events)).ranks[0]
    assert (share.data_ms, share.compute_ms, share.other_ms) == pytest.approx((8, 2, 2))
    assert pictures.timeline(write(tmp_path, events), data="load").ranks[0].data_ms == pytest.approx(6)


def test_every_rank_waits_for_the_last_one_and_never_longer_than_its_collective(tmp_path: Path) -> None:
    ranks = [[op(0, 20), reduce(start, 12), reduce(14, 15, 5)] for start in (2, 5, 9)]
    ranks.append([op(0, 20), reduce(3, 8, name="broadcast"), reduce(9, 12), reduce(14, 15, 5)])
    ranks[0].append(reduce(0.2, 0.7, name="broadcast"))  # rank 0 sends and is gone before the other enters
    shares = pictures.timeline(write(tmp_path, *ranks)).ranks
    assert [share.waiting_ms for share in shares] == pytest.approx([7 + 0.5, 4, 0, 0])


def test_buckets_that_start_in_another_order_are_matched_by_their_size(tmp_path: Path) -> None:
    one = [op(0, 20), reduce(2, 10, 1000), reduce(7.5, 12, 2000, OTHER_LOOP)]
    other = [op(0, 20), reduce(6, 12, 2000), reduce(7, 10, 1000, OTHER_LOOP)]
    shares = pictures.timeline(write(tmp_path, one, other)).ranks
    assert [share.waiting_ms for share in shares] == pytest.approx([5, 1.5])


def test_collectives_that_not_every_rank_recorded_are_left_out_of_waiting_and_the_picture_says_so(
    tmp_path: Path,
) -> None:
    shown = pictures.timeline(write(tmp_path, EARLY, [*LATE, reduce(17, 18)]))
    assert shown.ranks[0].waiting_ms == 0 and shown.ranks[0].communication_ms == pytest.approx(8)
    assert any("3 collectives have no partner" in text.get_text() for text in shown.figure.axes[0].texts)


def test_a_record_that_runs_on_counts_in_the_step_where_it_started(tmp_path: Path) -> None:
    events = [label("ProfilerStep#0", 0, 10), label("ProfilerStep#1", 10, 20), op(0, 20), reduce(8, 13), reduce(15, 18)]
    other = [*events[:3], reduce(11, 13), reduce(15, 18)]
    pattern = write(tmp_path, events, other)
    share = pictures.timeline(pattern).ranks[0]
    assert (share.communication_ms, share.waiting_ms) == pytest.approx((3, 0))
    share = pictures.timeline(pattern, steps=0).ranks[0]
    assert (share.communication_ms, share.waiting_ms) == pytest.approx((2, 2))


def test_a_trace_of_one_rank_needs_no_collective(tmp_path: Path) -> None:
    share = pictures.timeline(write(tmp_path, [op(0, 5)])).ranks[0]
    assert share.compute_ms == pytest.approx(5) and math.isnan(share.overlap_percent)


def test_kernels_of_a_gpu_count_and_its_host_does_not() -> None:
    shown = pictures.timeline(str(MADE / "cuda_*.json"))
    first, second = shown.ranks
    assert (first.step_ms, first.compute_ms, first.data_ms) == pytest.approx((10, 7.5, 0.5))
    assert (first.communication_ms, first.overlap_ms, first.waiting_ms) == pytest.approx((4.5, 2.5, 1.5))
    assert (second.communication_ms, second.overlap_ms, second.waiting_ms) == pytest.approx((3, 1.5, 0))
    assert [one.size for one in shown.collectives[1]] == [2097152 * 4, 1048576 * 4]
    assert "aligned" in shown.clock and shown.clock_error_ms == pytest.approx(0, abs=1e-6)
    assert pictures.timeline(str(MADE / "cuda_*.json"), between="forward").ranks[0].step_ms == pytest.approx(3)


# -- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", ["ab", "aa"])  # two machines; and two containers that call themselves the same
def test_clocks_of_two_machines_are_aligned_where_a_collective_ends(tmp_path: Path, hosts: str) -> None:
    late = [op(0, 12), reduce(9, 14), reduce(15, 20), op(21, 22)]
    early = [op(0, 10), reduce(6, 14), reduce(15, 20.2), op(21, 22)]
    shown = pictures.timeline(write(tmp_path, early, late, hosts=hosts, shifts=(0, -300)))
    assert [share.waiting_ms for share in shown.ranks] == pytest.approx([3, 0], abs=0.21)
    assert "aligned" in shown.clock and shown.clock_error_ms == pytest.approx(0.1)
    assert shown.collectives[1][0].start == pytest.approx(9, abs=0.2)


def test_a_shift_that_the_ends_suggest_is_kept_within_what_is_possible(tmp_path: Path) -> None:
    one = [op(0, 9), reduce(2, 8), reduce(20, 22), reduce(30.8, 31)]
    two = [op(0, 9), reduce(2, 13), reduce(20, 27), reduce(30.8, 31)]  # the ends of two records were written late
    shown = pictures.timeline(write(tmp_path, one, two, hosts="ab", shifts=(0, 50)))
    ends = [[collective.end for collective in rank] for rank in shown.collectives]
    starts = [[collective.start for collective in rank] for rank in shown.collectives]
    for position in range(3):
        assert max(s[position] for s in starts) <= min(e[position] for e in ends) + 1e-6


def test_ranks_of_one_machine_keep_their_clock(tmp_path: Path) -> None:
    shown = pictures.timeline(write(tmp_path, EARLY, LATE))
    assert "one machine" in shown.clock and shown.clock_error_ms == 0
    assert shown.collectives[1][0].end == pytest.approx(14.5)


def test_bases_that_differ_are_told_apart(tmp_path: Path) -> None:
    pattern = write(tmp_path, EARLY, LATE)
    second = json.loads((tmp_path / "trace_1.json").read_text(encoding="utf-8"))
    second["baseTimeNanoseconds"] += 2_000_000
    for one in second["traceEvents"][1:]:
        one["ts"] -= 2_000
    (tmp_path / "trace_1.json").write_text(json.dumps(second), encoding="utf-8")
    assert pictures.timeline(pattern).ranks[0].waiting_ms == pytest.approx(3)


# -- which part ------------------------------------------------------------------------------------------------------


def stepped(first: int = 3) -> list[Any]:
    """Three steps of 10, 11 and 12 ms."""
    edges = [0, 10, 21, 33]
    steps = [label(f"ProfilerStep#{first + n}", edges[n], edges[n + 1]) for n in range(3)]
    work = [one for n in range(3) for one in (label("forward", edges[n], edges[n] + 4), op(edges[n], edges[n] + 4))]
    return [*steps, *work, *(reduce(edge + 5, edge + 7) for edge in edges[:3]), label("end", 32, 33), op(40, 41)]


@pytest.mark.parametrize(
    ("wanted", "step_ms", "count"),
    [
        ({}, 12, 1),
        ({"steps": 4}, 11, 1),
        ({"steps": -3}, 10, 1),
        ({"steps": (3, 4)}, 10.5, 2),
        ({"steps": "all"}, 11, 3),
        ({"between": "forward"}, 4, 1),
        ({"between": "forward", "steps": 0}, 4, 1),
        ({"between": "end"}, 1, 1),
    ],
)
def test_steps_and_labels_choose_the_part_that_is_shown(
    tmp_path: Path, wanted: dict[str, Any], step_ms: float, count: int
) -> None:
    shown = pictures.timeline(write(tmp_path, stepped(), stepped()), **wanted)
    assert (shown.mean.step_ms, shown.steps) == (pytest.approx(step_ms), count)


def test_a_pair_of_labels_is_from_the_start_of_one_to_the_end_of_the_other(tmp_path: Path) -> None:
    events = [label("a", 0, 2), label("b", 2, 5), op(0, 9), label("a", 6, 7), label("b", 8, 10.5)]
    pattern = write(tmp_path, events)
    assert pictures.timeline(pattern, between=("a", "b")).mean.step_ms == pytest.approx(4.5)
    assert pictures.timeline(pattern, between=("a", "b"), steps=0).mean.step_ms == pytest.approx(5)


def test_figures_of_several_steps_are_per_step(tmp_path: Path) -> None:
    share = pictures.timeline(write(tmp_path, stepped(), stepped()), steps="all").ranks[0]
    assert (share.compute_ms, share.communication_ms, share.overlap_ms) == pytest.approx((4, 2, 0))


# -- files -----------------------------------------------------------------------------------------------------------


def test_files_left_over_from_a_larger_run_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, *[[op(0, 9), reduce(1, 2)] for _ in range(4)])
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    pattern = write(tmp_path, EARLY, LATE)
    assert len(pictures.timeline(pattern).ranks) == len(pictures.timeline(tmp_path).ranks) == 2


def test_zipped_traces_and_lists_in_any_order_are_read(tmp_path: Path) -> None:
    write(tmp_path, EARLY, LATE)
    zipped = tmp_path / "second.json.gz"
    zipped.write_bytes(gzip.compress((tmp_path / "trace_1.json").read_bytes()))
    shown = pictures.timeline([zipped, tmp_path / "trace_0.json"])
    assert [share.waiting_ms for share in shown.ranks] == pytest.approx([3, 0])


def test_a_trace_that_names_neither_rank_nor_host_is_taken_in_the_order_given(tmp_path: Path) -> None:
    write(tmp_path, EARLY, LATE)
    for path in tmp_path.iterdir():
        raw = json.loads(path.read_text(encoding="utf-8"))
        del raw["distributedInfo"], raw["host_name"], raw["baseTimeNanoseconds"]
        path.write_text(json.dumps(raw), encoding="utf-8")
    shown = pictures.timeline([tmp_path / "trace_1.json", tmp_path / "trace_0.json"])
    assert [share.compute_ms for share in shown.ranks] == pytest.approx([18, 15])


def broken(folder: Path, text: str) -> str:
    write(folder, EARLY, LATE)
    (folder / "trace_1.json").write_text(text, encoding="utf-8")
    return str(folder / "trace_*.json")


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no file": (lambda f: f / "none_*.json", {}, "no trace is at .*none_.*export_chrome_trace"),
    "no list": (lambda f: [], {}, "no trace was given"),
    "named file": (lambda f: [f / "trace_7.json"], {}, r"no trace at .*trace_7\.json"),
    "cut": (lambda f: broken(f, '{"traceEvents": [{"ph": "X"'), {}, r"trace_1\.json is not a whole trace"),
    "JSON": (lambda f: broken(f, "[1]"), {}, r"trace_1\.json is JSON, but no trace"),
    "empty": (lambda f: write(f, [label("a", 0, 1)]), {}, "holds no operation.*on_trace_ready"),
    "silent": (lambda f: write(f, [op(0, 1)], [op(0, 1)]), {}, "there is no collective.*no_sync"),
    "steps": (
        lambda f: write(f, stepped(), [*stepped(), label("ProfilerStep#6", 33, 34)]),
        {},
        r"different numbers of steps.*rank 0: 3, rank 1: 4",
    ),
    "step": (lambda f: write(f, stepped()), {"steps": 9}, "steps=9 is not recorded.* are 3 to 5"),
    "no steps": (lambda f: write(f, EARLY), {"steps": 1}, "no steps.*prof.step.*labels are step"),
    "kind": (lambda f: write(f, stepped()), {"steps": "some"}, "steps is 'some'"),
    "label": (lambda f: write(f, stepped()), {"between": "fwd"}, "no blocks labelled 'fwd'.*end, forward"),
    "pair": (lambda f: write(f, stepped()), {"between": ("forward", "end")}, "3 blocks labelled 'forward' and 1"),
    "runs": (lambda f: write(f, EARLY, LATE, shifts=(0, 9e6)), {}, "not of one run"),
    "clocks": (
        lambda f: write(
            f, [op(0, 1), reduce(0, 1, name="broadcast")], [op(0, 1), reduce(0, 1, 5, name="gather")], hosts="ab"
        ),
        {},
        "different machines.*dist.barrier",
    ),
    "twice": (lambda f: [write(f, EARLY, LATE)[:-6] + "0.json"] * 2, {}, "are both of rank 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_named(tmp_path: Path, name: str) -> None:
    make, wanted, message = WRONG[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        pictures.timeline(make(tmp_path), **wanted)


# -- the picture -----------------------------------------------------------------------------------------------------


def many(folder: Path, ranks: int) -> str:
    rows = []
    for rank in range(ranks):
        late = 3.0 * rank
        rows.append(
            [
                label("data", late, late + 5),
                label("forward", late + 5, late + 30),
                op(late + 5, late + 29),
                label("backward", late + 30, 140),
                *(op(late + 30 + 7 * n, late + 36 + 7 * n) for n in range(10)),
                reduce(late + 45, 80, 2_100_000),
                reduce(late + 60, 100, 1_000_000, OTHER_LOOP),
                reduce(101 + rank / 10, 130, 50_000),
                reduce(131, 131.001, 1),
                label("optimizer", 140, 150),
                op(140, 150),
            ]
        )
    return write(folder, *rows)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_no_text_leaves_the_white_page_and_no_two_texts_touch(tmp_path: Path, ranks: int) -> None:
    shown = pictures.timeline(many(tmp_path, ranks))
    figure = shown.figure
    assert_texts_fit(figure)
    said = [text.get_text() for text in figure.axes[0].texts]
    assert {f"rank {rank}" for rank in range(ranks)} | {"computes", "communicates", "both at once"} <= set(said)
    assert len(base64.b64decode(shown._repr_png_()[0])) < 60_000


def test_buckets_carry_their_size_where_there_is_room(tmp_path: Path) -> None:
    said = [text.get_text() for text in pictures.timeline(many(tmp_path, 2)).figure.axes[0].texts]
    assert said.count("all_reduce 8.4 MB") == 2 and said.count("all_reduce 4 MB") == 2
    assert not any("4 B" in text for text in said)
    assert said.count("forward") == 2


def test_a_timeline_shows_itself_as_picture_and_as_table(tmp_path: Path) -> None:
    shown = pictures.timeline(write(tmp_path, EARLY, LATE), between="step", title="one step")
    data, size = shown._repr_png_()
    assert base64.b64decode(data).startswith(b"\x89PNG") and size["width"] == 900
    head, first, *_, mean = repr(shown).splitlines()
    assert head.split()[:5] == ["ms", "a", "step", "step", "compute"]
    assert first.split() == ["rank", "0", "20.0", "15.0", "8.0", "4.0", "3.0", "0.0", "1.0", "50"]
    assert mean.split()[0] == "mean"
    assert "one step" in [text.get_text() for text in shown.figure.axes[0].texts]
