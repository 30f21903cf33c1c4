"""Put the traces of all ranks on one clock, and find which of their collectives belong together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from .read import Collective, Trace

# Nobody can leave these before all have entered.
TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
ONE_TO_ONE = ("send", "recv")
NOT_ONE_RUN = 1000.0  # ms that clocks of one host cannot be apart
CLOCKS_DIFFER = 1.0  # ms


@dataclass(frozen=True)
class Match:
    """One collective as every rank saw it, by the traces' position."""

    parts: dict[int, Collective]

    @property
    def together(self) -> bool:
        return next(iter(self.parts.values())).name.startswith(TOGETHER)


@dataclass(frozen=True)
class Clock:
    """`shifts[i]` ms bring the times of trace i onto the clock of trace 0. `error` is 0 for a clock they share."""

    shifts: list[float]
    error: float
    text: str


def match(traces: list[Trace]) -> tuple[list[Match], int]:
    """Find the collectives that belong together, in the order of starts: of one kind, size and group, the nth of each.

    The second number counts those left without partners, because the ranks recorded differently many of that kind.
    """
    kinds: dict[tuple[str, int | None, str], dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for position, trace in enumerate(traces):
        for one in trace.collectives:
            if not one.name.startswith(ONE_TO_ONE):
                size = one.size if one.name.startswith(TOGETHER) else None  # of a scatter, only the source has an input
                kinds[one.name, size, one.group][position].append(one)
    found, alone = [], 0
    for by_trace in kinds.values():
        counts = {len(some) for some in by_trace.values()}
        if len(counts) > 1 or (len(by_trace) == 1 and len(traces) > 1):
            alone += sum(map(len, by_trace.values()))
        else:
            found += [Match({p: some[n] for p, some in by_trace.items()}) for n in range(counts.pop())]
    return found, alone


def align(traces: list[Trace], matches: list[Match]) -> Clock:
    """Ranks of one host share its clock. Otherwise: all leave an all_reduce nearly at once, so their ends are aligned.

    Raises ValueError where traces of several hosts have no such collective in common, or where traces of one host
    contradict each other by seconds: they are then of different runs.
    """
    shifts = [(trace.base - traces[0].base) / 1e6 for trace in traces]
    usable = [one for one in matches if one.together]
    early = max((_too_early(one, shifts) for one in usable), default=0.0)
    one_host = len(traces) == 1 or len({trace.host for trace in traces} | {""}) == 2
    if one_host and early > NOT_ONE_RUN:
        raise ValueError(
            f"a rank left a collective {early / 1e3:.1f} s before another entered it: these traces are not of one run"
        )
    if one_host and early <= CLOCKS_DIFFER:
        return Clock(shifts, 0.0, "one clock: all ranks ran on one machine" if len(traces) > 1 else "")
    for position in range(1, len(traces)):
        pairs = [(one.parts[0], one.parts[position]) for one in usable if {0, position} <= one.parts.keys()]
        if not pairs:
            raise ValueError(
                "the ranks ran on different machines, whose clocks differ, and no all_reduce or barrier of all ranks "
                "is in their traces to align them at: call dist.barrier() inside the profiled part"
            )
        shifts[position] = _shift(pairs)
    error = _spread(usable, shifts)
    return Clock(shifts, error, f"clocks aligned where collectives end, to about {max(error, 0.01):.2g} ms")


def _shift(pairs: list[tuple[Collective, Collective]]) -> float:
    """The middle of what the ends say, within what is possible: no rank leaves before the other has entered."""
    least = max(mine.start - theirs.end for mine, theirs in pairs)
    most = min(mine.end - theirs.start for mine, theirs in pairs)
    wanted = median(mine.end - theirs.end for mine, theirs in pairs)
    return min(max(wanted, least), most) if least <= most else wanted


def _too_early(one: Match, shifts: list[float]) -> float:
    """How long before the last rank entered did the first one leave? Negative where all is well."""
    entered = max(part.start + shifts[position] for position, part in one.parts.items())
    return entered - min(part.end + shifts[position] for position, part in one.parts.items())


def _spread(matches: list[Match], shifts: list[float]) -> float:
    """How far the ends of one collective are apart, half of the times at least."""
    ends = [[part.end + shifts[position] for position, part in one.parts.items()] for one in matches]
    return median(max(some) - min(some) for some in ends)
