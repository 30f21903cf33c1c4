"""Which part of a trace is looked at: a step, or what lies between two labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .intervals import Interval
from .read import STEP, Label, Trace

Steps = int | str | tuple[int, int] | None
Between = str | tuple[str, str] | None


@dataclass(frozen=True)
class Window:
    """From `start` to `end`, ms on the trace's own clock; `steps` are the (start, end) of the steps in it."""

    start: float
    end: float
    steps: tuple[Interval, ...]
    names: tuple[str, ...]


def choose_windows(traces: Sequence[Trace], steps: Steps, between: Between) -> list[Window]:
    """A window for each trace; see `pictures.timeline` for `steps` and `between`. Raises ValueError where none fits."""
    found = [_ranges(trace, between) for trace in traces]
    counts = {len(ranges) for ranges in found}
    if len(counts) > 1:
        told = ", ".join(f"rank {t.rank}: {len(ranges)}" for t, ranges in zip(traces, found, strict=True))
        raise ValueError(f"the ranks recorded different numbers of {_named(between)} ({told})")
    if counts == {0} and between is None and steps is None:
        return [_everything(trace) for trace in traces]
    if counts == {0}:
        raise ValueError(f"the traces have no {_named(between)}; their labels are {_known(traces[0])}")
    return [_pick(ranges, steps, between) for ranges in found]


def _ranges(trace: Trace, between: Between) -> list[Label]:
    if between is None:
        return [label for label in trace.labels if label.name.startswith(STEP)]
    first, last = (between, between) if isinstance(between, str) else between
    starts = [label for label in trace.labels if label.name == first]
    ends = [label for label in trace.labels if label.name == last]
    if len(starts) != len(ends):
        raise ValueError(
            f"rank {trace.rank} has {len(starts)} blocks labelled {first!r} and {len(ends)} labelled {last!r}"
        )
    return [Label(str(number), a.start, b.end) for number, (a, b) in enumerate(zip(starts, ends, strict=True))]


def _pick(ranges: list[Label], steps: Steps, between: Between) -> Window:
    numbers = [int(label.name.removeprefix(STEP)) for label in ranges]
    if steps == "all":
        first, last = numbers[0], numbers[-1]
    elif isinstance(steps, tuple):
        first, last = steps
    elif steps is None or isinstance(steps, int):
        first = last = numbers[-1 if steps is None else steps] if steps is None or steps < 0 else steps
    else:
        raise ValueError(f'steps is {steps!r}; it may be a number, a pair (first, last), or "all"')
    chosen = [label for label, number in zip(ranges, numbers, strict=True) if first <= number <= last]
    if first not in numbers or last not in numbers or not chosen:
        raise ValueError(f"steps={steps} is not recorded; the {_named(between)} are {numbers[0]} to {numbers[-1]}")
    when = tuple((label.start, label.end) for label in chosen)
    names = tuple(f"step {number}" for number in numbers if first <= number <= last) if between is None else ()
    return Window(when[0][0], when[-1][1], when, names)


def _everything(trace: Trace) -> Window:
    labels = [(label.start, label.end) for label in trace.labels]
    every = [*trace.compute, *trace.data, *((one.start, one.end) for one in trace.collectives), *labels]
    start, end = min(when[0] for when in every), max(when[1] for when in every)
    return Window(start, end, ((start, end),), ())


def _named(between: Between) -> str:
    if between is None:
        return f"steps ({STEP}: the profiler marks them where it has a schedule and prof.step() is called)"
    return f"blocks labelled {between!r}"


def _known(trace: Trace) -> str:
    return ", ".join(sorted({label.name for label in trace.labels})) or "none"
