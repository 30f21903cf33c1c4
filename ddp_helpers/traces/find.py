"""Which files are the traces of one run?"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from .read import Trace, read_trace

HOW = (
    "Every rank has to write one, with `prof.export_chrome_trace(f'scripts/trace_{rank}.json')` below the block of "
    "`with profile(…) as prof:`"
)


def find_traces(source: str | Path | Iterable[str | Path], data: str = "data") -> list[Trace]:
    """Read the traces that `source` names, sorted by rank; see `pictures.timeline` for what both may be.

    From a folder or a pattern, only those of the newest run's world size are taken: where 4 ranks ran and then 2, two
    files of the older run are left over. Raises ValueError where there are none, or two of one rank.
    """
    if isinstance(source, (str, Path)) and not Path(source).is_file():
        found = [read_trace(path, data) for path in _search(str(source))]
        newest = max(found, key=lambda trace: trace.path.stat().st_mtime)
        traces = [trace for trace in found if trace.world_size == newest.world_size]
    else:
        listed = [source] if isinstance(source, (str, Path)) else list(source)
        traces = [read_trace(Path(path), data) for path in listed]
    if not traces:
        raise ValueError(f"no trace was given. {HOW}.")
    return _of_one_run(traces)


def _search(source: str) -> list[Path]:
    folder = Path(source)
    if folder.is_dir():
        paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    else:
        paths = sorted(map(Path, glob.glob(source)))
    if not paths:
        raise ValueError(f"no trace is at {source}. {HOW}.")
    return paths


def _of_one_run(traces: list[Trace]) -> list[Trace]:
    if all(trace.rank is None for trace in traces):  # not from a distributed run: the order given is all there is
        for number, trace in enumerate(traces):
            trace.rank = number
    unknown = [trace.path.name for trace in traces if trace.rank is None]
    if unknown:
        raise ValueError(f"{unknown[0]} does not say its rank, and the others do: was it written before init?")
    sizes = {trace.world_size for trace in traces}
    if len(sizes) > 1:
        raise ValueError(f"these traces are of runs of different world sizes: {sorted(map(str, sizes))}")
    by_rank: dict[int, Trace] = {}
    for trace in traces:
        other = by_rank.setdefault(trace.rank or 0, trace)
        if other is not trace:
            raise ValueError(
                f"{other.path.name} and {trace.path.name} are both of rank {trace.rank}. "
                "Give one trace a rank: a list of files, or a pattern that only one run fits."
            )
    return [by_rank[rank] for rank in sorted(by_rank)]
