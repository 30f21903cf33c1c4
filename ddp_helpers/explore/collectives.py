"""Pick a collective, edit what the ranks hold, and see the result and the code that gives it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..pictures.collective import Rows, collective
from .explorer import Explorer, widgets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_RANKS = 4
REDUCE: dict[str, Callable[[list[float]], float]] = {
    "SUM": math.fsum,
    "AVG": lambda column: math.fsum(column) / len(column),
    "MAX": max,
    "MIN": min,
    "PRODUCT": math.prod,
}
CODE = {
    "broadcast": "x = mine.clone()\ndist.broadcast(x, src={root})",
    "reduce": "x = mine.clone()\ndist.reduce(x, dst={root}, op=dist.ReduceOp.{op})  # elsewhere x is scratch now",
    "all_reduce": "x = mine.clone()\ndist.all_reduce(x, op=dist.ReduceOp.{op})",
    "gather": (
        "x = [torch.empty_like(mine) for _ in range(world)] if rank == {root} else None\n"
        "dist.gather(mine, x, dst={root})"
    ),
    "all_gather": "x = [torch.empty_like(mine) for _ in range(world)]\ndist.all_gather(x, mine)",
    "scatter": (
        "x = torch.empty(len(mine) // world)\n"
        "parts = list(mine.chunk(world)) if rank == {root} else None\n"
        "dist.scatter(x, parts, src={root})"
    ),
    "reduce_scatter": (
        "x = torch.empty(len(mine) // world)\ndist.reduce_scatter(x, list(mine.chunk(world)), op=dist.ReduceOp.{op})"
    ),
    "all_to_all": "x = torch.empty_like(mine)\ndist.all_to_all_single(x, mine)",  # gloo of torch 2.9 has no other
    "send and recv": (
        "x = torch.empty_like(mine)\n"
        "request = dist.isend(mine, (rank + 1) % world)\n"
        "dist.recv(x, (rank - 1) % world)\n"
        "request.wait()"
    ),
}
DEALS = ("scatter", "reduce_scatter", "all_to_all")  # they cut a rank's values into one part for each rank


def collectives(name: str = "all_reduce") -> Explorer:
    """Explore what each collective does with the ranks' values.

    >>> explorer = collectives("broadcast")
    >>> explorer.set(root=1, rank1="7 8 9")  # doctest: +SKIP

    Controls: `name`, a key of CODE; `ranks`, 2 to 4; `op`, for what reduces; `root`, the rank that sends to all or
    receives from all; `rank0` … `rank3`, numbers with spaces between. The code below the picture runs as it stands in
    a script that has joined a gloo group.
    """
    library = widgets()

    def text(rank: int) -> Any:
        numbers = " ".join(str(10 * rank + number) for number in range(MOST_RANKS))
        return library.Text(numbers, description=f"rank {rank}", layout={"width": "230px"})

    controls = {
        "name": library.Dropdown(options=list(CODE), value=name, description="collective"),
        "ranks": library.IntSlider(MOST_RANKS, 2, MOST_RANKS, description="ranks"),
        "op": library.Dropdown(options=list(REDUCE), description="op"),
        "root": library.IntSlider(0, 0, MOST_RANKS - 1, description="root"),
        **{f"rank{rank}": text(rank) for rank in range(MOST_RANKS)},
    }
    if hasattr(controls["ranks"], "observe"):  # before the picture's own observers: they see the root that is left
        controls["ranks"].observe(lambda change: _offer(controls), names="value")
    return Explorer(controls, _draw, _explain)


def _offer(controls: dict[str, Any]) -> None:
    """Leave only the ranks that there are."""
    ranks = controls["ranks"].value
    controls["root"].max = ranks - 1  # a slider moves a greater root down
    for rank in range(MOST_RANKS):
        controls[f"rank{rank}"].layout.display = None if rank < ranks else "none"


def result(name: str, rows: list[list[float]], op: str = "SUM", root: int = 0) -> tuple[Rows, Rows]:
    """What the ranks hold before and after: `result("all_reduce", [[1], [2]])` is ([[1], [2]], [[3], [3]]).

    None stands for what is not defined. Raises ValueError for what the real collective could not do.
    """
    _check(name, rows, root)
    ranks = range(len(rows))
    before: Rows = [list(row) for row in rows]
    reduced = [REDUCE[op](list(column)) for column in zip(*rows, strict=True)]
    part = len(rows[0]) // len(rows)
    everything = [value for row in rows for value in row]

    def mine(row: list[float], rank: int) -> list[float]:
        return row[rank * part : (rank + 1) * part]

    after: dict[str, Callable[[int], list[Any]]] = {
        "broadcast": lambda rank: rows[root],
        "reduce": lambda rank: reduced if rank == root else [None] * len(reduced),
        "all_reduce": lambda rank: reduced,
        "gather": lambda rank: everything if rank == root else [],
        "all_gather": lambda rank: everything,
        "scatter": lambda rank: mine(rows[root], rank),
        "reduce_scatter": lambda rank: mine(reduced, rank),
        "all_to_all": lambda rank: [value for row in rows for value in mine(row, rank)],
        "send and recv": lambda rank: rows[rank - 1],
    }
    if name == "scatter":
        before = [row if rank == root else [] for rank, row in enumerate(before)]
    return before, [list(after[name](rank)) for rank in ranks]


def code(name: str, rows: list[list[float]], op: str = "SUM", root: int = 0) -> str:
    """The lines that do it on every rank, and leave the result in x."""
    numbers = ", ".join(f"[{', '.join(f'{value:g}' for value in row)}]" for row in rows)
    return (
        "rank, world = dist.get_rank(), dist.get_world_size()\n"
        f"mine = torch.tensor([{numbers}], dtype=torch.float32)[rank]\n" + CODE[name].format(op=op, root=root)
    )


def _check(name: str, rows: list[list[float]], root: int) -> None:
    world, lengths = len(rows), [len(row) for row in rows]
    if len(set(lengths)) > 1 or not lengths[0]:
        counts = ", ".join(map(str, lengths))
        raise ValueError(f"The ranks hold {counts} values. A collective takes tensors of one shape on all ranks.")
    if root >= world:
        raise ValueError(f"There is no rank {root} among {world} ranks.")
    if name in DEALS and lengths[0] % world:
        raise ValueError(
            f"{name} gives each of the {world} ranks an equal part, and {lengths[0]} values cannot be cut so."
        )


def _parsed(ranks: int, texts: dict[str, str]) -> list[list[float]]:
    rows = []
    for rank in range(ranks):
        words = texts[f"rank{rank}"].replace(",", " ").split()
        try:
            rows.append([float(word) for word in words])
        except ValueError:
            raise ValueError(f"rank {rank}: write numbers with spaces between, not {texts[f'rank{rank}']!r}.") from None
    return rows


def _draw(name: str, ranks: int, op: str, root: int, **texts: str) -> Figure:
    return collective({name: result(name, _parsed(ranks, texts), op, root)}, root=root)


def _explain(name: str, ranks: int, op: str, root: int, **texts: str) -> str:
    return code(name, _parsed(ranks, texts), op, root)
