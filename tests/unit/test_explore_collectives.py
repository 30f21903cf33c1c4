"""The explorer of collectives: its arithmetic is what gloo does with the code that it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddp_helpers import launch
from ddp_helpers.explore import collectives
from ddp_helpers.explore.collectives import CODE, REDUCE, code, result

ROWS = [[3.0, -1.0, 4.0, 0.5], [2.0, 7.0, 1.0, 8.0], [-2.0, 8.0, 1.0, 8.0], [2.0, 8.0, 4.0, 5.0]]
CASES = [
    (name, op, root, world)
    for name in CODE
    for op in (REDUCE if "reduce" in name else ["SUM"])
    for root in ((0, 1) if "{root}" in CODE[name] else (0,))
    for world in (2, 4)
]


def run_on_gloo(folder: Path, world: int) -> list[dict[int, Any]]:
    """What x holds on each rank after the code of each case, all in one script."""
    lines = [
        "import torch",
        "import torch.distributed as dist",
        'dist.init_process_group("gloo")',
        "after = {}",
        "def flat(x):",
        "    parts = [] if x is None else x if isinstance(x, list) else [x]",
        "    return torch.cat(parts).tolist() if parts else []",
    ]
    for number, (name, op, root, size) in enumerate(CASES):
        if size == world:
            lines += [code(name, ROWS[:world], op, root), f"after[{number}] = flat(x)"]
    script = folder / "collectives.py"
    script.write_text("\n".join([*lines, "dist.destroy_process_group()"]), encoding="utf-8")
    run = launch(script, nproc_per_node=world, returns=["after"])
    return [rank.returned["after"] for rank in run.ranks]


@pytest.mark.parametrize("world", [2, 4])
def test_the_arithmetic_is_what_gloo_does_with_the_code_shown(
    world: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    real = run_on_gloo(tmp_path, world)
    for number, (name, op, root, size) in enumerate(CASES):
        if size != world:
            continue
        _, computed = result(name, ROWS[:world], op, root)
        for rank, row in enumerate(computed):
            if None not in row:  # reduce leaves the others' values undefined
                assert real[rank][number] == pytest.approx(row), (name, op, root, rank)


def test_reduce_promises_nothing_to_the_other_ranks() -> None:
    assert result("reduce", [[1, 2], [3, 4]], root=1)[1] == [[None, None], [4, 6]]


def test_scatter_takes_only_from_the_root() -> None:
    assert result("scatter", [[1, 2], [3, 4]], root=1) == ([[], [3, 4]], [[3], [4]])


def test_each_control_changes_picture_code_and_result() -> None:
    explorer = collectives("all_reduce")
    assert "dist.all_reduce(x, op=dist.ReduceOp.SUM)" in explorer.text
    for change, shown in (
        ({"op": "MAX"}, "ReduceOp.MAX"),
        ({"name": "broadcast"}, "dist.broadcast(x, src=0)"),
        ({"root": 2}, "src=2"),
        ({"rank1": "7, 8 9 10"}, "[7, 8, 9, 10]"),
        ({"ranks": 3}, "[20, 21, 22, 23]], dtype"),
    ):
        picture = explorer._image.value
        explorer.set(**change)
        assert shown in explorer.text and explorer._image.value != picture, change
    assert "30, 31" not in explorer.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank0": "1 2 three"}, "rank 0: write numbers with spaces between, not '1 2 three'"),
        ({"rank3": "1 2"}, "The ranks hold 4, 4, 4, 2 values. A collective takes tensors of one shape"),
        ({"rank0": "", "rank1": "", "rank2": "", "rank3": ""}, "The ranks hold 0, 0, 0, 0 values"),
        ({"name": "scatter", "ranks": 3}, "scatter gives each of the 3 ranks an equal part, and 4 values cannot"),
    ],
)
def test_what_a_real_collective_could_not_do_is_said(change: dict[str, Any], said: str) -> None:
    explorer = collectives()
    explorer.set(**change)
    assert said in explorer.text and explorer._image.layout.display == "none"


def test_only_the_ranks_that_there_are_can_be_chosen_and_edited() -> None:
    explorer = collectives("broadcast")
    explorer.set(root=3, ranks=3)
    fields = [explorer.controls[f"rank{rank}"].layout.display for rank in range(4)]
    assert fields == [None, None, None, "none"]
    assert (explorer.values["root"], explorer.controls["root"].max) == (2, 2) and "src=2" in explorer.text
    explorer.set(ranks=4)
    assert explorer.controls["rank3"].layout.display is None and explorer.controls["root"].max == 3
    with pytest.raises(ValueError, match="There is no rank 3 among 3 ranks"):
        result("broadcast", ROWS[:3], root=3)
