"""What each rank did when, from the traces of torch.profiler: computing, communicating, waiting, fetching data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..traces import Collective, Share, align, choose_windows, find_traces, match, mean_share
from ..traces.shares import make_lane, share, started, waiting_times
from .display import flat_png
from .timeline_drawing import Row, draw_timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..traces import Trace
    from ..traces.window import Between, Steps, Window


@dataclass(frozen=True)
class Timeline:
    """A picture of what the ranks did, and its figures. `timeline` makes one."""

    ranks: list[Share]
    """For each rank, ms a step."""
    mean: Share
    """The same, averaged over the ranks."""
    steps: int
    """How many steps are shown."""
    collectives: list[list[Collective]]
    """For each rank, what it communicated; ms from the left end of the picture."""
    clock: str
    """How the ranks' clocks were brought together."""
    clock_error_ms: float
    figure: Figure

    def table(self) -> str:
        """The figures as text: a line for each rank, and their mean."""
        names = [field.name for field in fields(Share)]
        head = ["ms a step", *(name.removesuffix("_ms") for name in names), "overlap %"]
        rows = [(f"rank {number}", one) for number, one in enumerate(self.ranks)] + [("mean", self.mean)]
        cells = [
            [label, *(f"{getattr(one, name):.1f}" for name in names), f"{one.overlap_percent:.0f}"]
            for label, one in rows
        ]
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [head, *cells]
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.table()

    def _repr_png_(self) -> tuple[str, dict[str, Any]]:
        return flat_png(self.figure)


def timeline(
    source: str | Path | Iterable[str | Path],
    *,
    steps: Steps = None,
    between: Between = None,
    data: str = "data",
    title: str = "",
) -> Timeline:
    """Draw what each rank did when, from one trace of torch.profiler a rank, and add it up.

        shown = pictures.timeline("scripts/trace_*.json")
        shown.mean.overlap_percent, shown.ranks[1].waiting_ms

    In the script, after some warm-up steps (DDP changes its buckets after the first one):

        with profile(record_shapes=True) as prof:  # from torch.profiler
            train_step()
        prof.export_chrome_trace(f"scripts/trace_{rank}.json")

    source   the files, one a rank; or a folder or a pattern (of it, the files of the newest run's world size are taken)
    steps    None: the last step. A number: this one. A pair: from the first to the last of it. "all": all of them.
             They are the profiler's steps (a schedule, and prof.step()); without any, the whole trace is one step.
    between  steps are the blocks with this label (`with record_function("backward"):`), counted from 0; a pair of
             labels: from the start of the first to the end of the second. -1 is the last.
    data     the label of the blocks that fetch data; what torch's DataLoader labels itself counts too

    What the figures mean; each is in ms a step, of what the picture shows:

    step           from the start to the end of the step on this rank
    compute        at least one operator runs (aten::mm and its like, in the trace "cpu_op" with a namespace), on any
                   thread of the process. What starts or awaits a collective does not count (c10d::…), nor what the
                   autograd engine wraps around operators, nor what runs inside a data block on its thread. With a GPU:
                   at least one kernel runs that is not NCCL's, or a copy other than from the host.
    communication  at least one collective is under way on this rank: gloo's record of it, or NCCL's kernel. It
                   contains waiting: a collective starts when this rank enters it, and cannot end before all have.
                   It counts in the step in which it started, and to the end of that.
    overlap        both of the above at once. overlap_percent is its part of communication.
    exposed        communication without compute
    waiting        from when this rank entered a collective until the last rank did. Part of communication, and like
                   it, it may be overlapped. What a rank waits inside a collective for a slow peer is not seen.
    data           a data block runs; with a GPU, or a copy from the host
    other          none of compute, communication and data: Python, or idle

    step = compute + exposed + data + other, as long as no data is fetched under either of the first two (with a GPU it
    may be). Which collectives belong together is told by their kind, size and group, the nth with the nth; gloo does
    not record its group, so with several groups of one size waiting may be wrong. On a GPU a step is where the
    profiler's labels are on the device, not on its host.

    Traces of one machine share a clock. Those of several machines are aligned where an all_reduce or barrier ends,
    which all ranks leave nearly together; `clock_error_ms` is how far these ends are apart afterwards (the median).

    Raises ValueError for files that are no traces or were cut short, traces of different runs, ranks with different
    numbers of steps, several ranks that communicated nothing, and steps or labels that are not there.
    """
    traces = find_traces(source, data)
    matches, alone = match(traces)
    if len(traces) > 1 and not matches and not alone:
        raise ValueError(
            f"in {len(traces)} traces there is no collective: nothing was communicated while the profiler ran. Is the "
            "model wrapped in DDP, and was backward() called outside no_sync()?"
        )
    clock = align(traces, matches)
    windows = choose_windows(traces, steps, between)
    left = min(window.start + shift for window, shift in zip(windows, clock.shifts, strict=True))
    moves = [shift - left for shift in clock.shifts]
    lanes = [
        make_lane(trace, window, waiting)
        for trace, window, waiting in zip(traces, windows, waiting_times(matches, clock.shifts), strict=True)
    ]
    shares = [share(lane, window) for lane, window in zip(lanes, windows, strict=True)]
    shown = [_shown(trace, window, move) for trace, window, move in zip(traces, windows, moves, strict=True)]
    hidden = {between} if isinstance(between, str) else set()
    rows = [
        Row(trace, window, lane, part, collectives, move, hidden)
        for trace, window, lane, part, collectives, move in zip(
            traces, windows, lanes, shares, shown, moves, strict=True
        )
    ]
    note = f"{alone} collectives have no partner on other ranks" if alone else ""
    head = "; ".join(filter(None, [_what(windows[0], between), clock.text, note]))
    figure = draw_timeline(rows, title or _title(len(traces)), head)
    return Timeline(shares, mean_share(shares), len(windows[0].steps), shown, clock.text, clock.error, figure)


def _shown(trace: Trace, window: Window, move: float) -> list[Collective]:
    return [replace(one, start=one.start + move, end=one.end + move) for one in started(trace, window)]


def _title(ranks: int) -> str:
    return f"what {ranks} ranks did" if ranks > 1 else "what one process did"


def _what(window: Window, between: Between) -> str:
    if between is not None:
        name = between if isinstance(between, str) else f"{between[0]} to {between[1]}"
        return f"{name}, {len(window.steps)} times" if len(window.steps) > 1 else name
    if not window.names:
        return "the whole trace"
    return window.names[0] if len(window.names) == 1 else f"{window.names[0]} to {window.names[-1]}"
