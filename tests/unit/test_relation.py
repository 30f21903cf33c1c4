"""Relations between ranks that are hard to bring about here: NCCL's recorder, many ranks, half-known positions."""

from __future__ import annotations

from typing import Any

import pytest

from ddp_helpers.position import Group, Op, Position, read_position
from ddp_helpers.relation import in_step, relation

WORLD = Group("0", 0)


def place(line: int | None) -> str:
    return "" if line is None else f" (line {line})"


def at(rank: int, *ops: Op, **more: Any) -> Position:
    return Position(rank, ops={WORLD: {op.seq: op for op in ops}} if ops else {}, **more)


def op(seq: int, name: str = "all_reduce", size: int = 4, **more: Any) -> Op:
    more = {"pending": True, "line": 10 * seq, "dtypes": ("Float",), "order": seq} | more
    return Op(seq, name, ((size,),), **more)


def entry(seq: int, name: str = "all_reduce", **more: Any) -> dict[str, Any]:
    entry = {"group": "0", "generation": 0, "seq": seq, "name": name, "sizes": [[2]], "dtypes": ["Float"]}
    return entry | {"order": seq, "pending": True, "p2p": False, "line": seq, "inside": []} | more


def answered(rank: int, *ops: dict[str, Any]) -> Position:
    answer = {"script": "s.py", "ending": False, "stack": [], "call": None, "groups": {"0": [0, 1]}, "ops": ops}
    return read_position(rank, answer, busy=False)


def test_dtypes_that_differ_are_named() -> None:
    text = relation([at(0, op(1)), at(1, op(1, dtypes=("Double",)))], place)
    assert text == (
        "Ranks call a collective with other dtypes: as #1, rank 0 calls all_reduce [4] of Float (line 10), "
        "rank 1 calls all_reduce [4] of Double (line 10). All ranks must pass tensors of one dtype."
    )


def test_a_difference_that_is_past_is_told_beside_what_is_waited_for() -> None:
    done = {"pending": False}
    text = relation([at(0, op(1, "broadcast", 4, **done), op(2)), at(1, op(1, "broadcast", 6, **done))], place)
    assert text.startswith("Rank 0 waits in all_reduce #2 [4] (line 20). Rank 1 has not come to it")
    assert text.partition("Before that, ")[2] == (
        "ranks called a collective with different shapes: as #1, rank 0 called broadcast [4] (line 10), "
        "rank 1 called broadcast [6] (line 10). All ranks must pass tensors of one size."
    )


def test_shapes_that_may_differ_are_not_blamed() -> None:
    assert "different" not in relation([at(0, op(1, "scatter", 4)), at(1, op(1, "scatter", 0))], place)
    two = Op(1, "all_reduce", ((2, 3),), pending=True)
    assert "different" not in relation([at(0, two), at(1, Op(1, "all_reduce", ((3, 2),), pending=True))], place)


def test_a_rank_that_is_ahead_is_not_said_to_be_missing() -> None:
    """It called #3 long ago, so long that it does not tell any more."""
    text = relation([at(0, op(3)), at(1, op(200, pending=False)), at(2)], place)
    assert "Rank 2 has not come to it" in text
    assert "ank 1" not in text


def test_of_eight_ranks_those_that_do_the_same_are_named_together() -> None:
    ranks = [at(rank, op(1)) for rank in range(6)] + [Position(6, state="ended"), Position(7, state="ended")]
    assert relation(ranks, place) == (
        "Ranks 0, 1, 2, 3, 4, 5 wait in all_reduce #1 [4] (line 10). Ranks 6, 7 have not come to it: they have ended. "
        "Ranks 6, 7 will not come any more."
    )


def test_a_rank_outside_its_script_is_not_said_to_be_at_an_empty_line() -> None:
    """A backward() that the check of an exercise has called."""
    stack = [("check.py", 3, "judge"), ("graph.py", 9, "_engine_run_backward")]
    assert Position(0, "s.py", stack).doing(place) == "outside the script, in _engine_run_backward (graph.py)"


def test_ranks_in_one_collective_are_in_step_and_others_are_not() -> None:
    assert in_step([at(0, op(1)), at(1, op(1))])
    assert not in_step([at(0, op(1)), at(1, op(1, "barrier"))])
    assert not in_step([at(0, op(1)), at(1)])


def test_a_new_group_of_the_old_name_is_another() -> None:
    before, after = entry(5, pending=False), entry(1, "barrier", generation=1)
    text = relation([answered(0, before, after), answered(1, before)], place)
    assert text.startswith("Rank 0 waits in barrier #1 [2] (line 1). Rank 1 has not come to it")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("send 0->1", "send 1->0"), "Ranks 0, 1 all send first"),
        (("recv 0<-1", "recv 1<-0"), "Ranks 0, 1 all wait to receive, and none of them sends"),
        (("recv 0<-1", ""), "Rank 0 waits in recv from rank 1. Rank 1 does not send: it is still starting."),
    ],
)
def test_nccls_point_to_point_calls_come_from_its_recorder(names: tuple[str, str], says: str) -> None:
    ranks = [answered(rank, *[entry(0, name, p2p=True)] * bool(name)) for rank, name in enumerate(names)]
    assert relation(ranks, place).startswith(says)


def test_an_exchange_under_way_is_no_circle() -> None:
    both = [[entry(0, f"send {a}->{b}", p2p=True), entry(0, f"recv {a}<-{b}", p2p=True)] for a, b in ((0, 1), (1, 0))]
    assert "cannot end" not in relation([answered(rank, *ops) for rank, ops in enumerate(both)], place)
