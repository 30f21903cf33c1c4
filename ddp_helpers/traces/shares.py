"""How much of a step went into what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from .align import Match
from .intervals import Interval, common, length, union
from .read import Collective, Trace
from .window import Window


@dataclass(frozen=True)
class Share:
    """Milliseconds a step, of one rank or averaged over ranks. `pictures.timeline` defines each."""

    step_ms: float
    compute_ms: float
    communication_ms: float
    overlap_ms: float
    waiting_ms: float
    data_ms: float
    other_ms: float

    @property
    def exposed_ms(self) -> float:
        """Communication that nothing was computed under."""
        return self.communication_ms - self.overlap_ms

    @property
    def overlap_percent(self) -> float:
        """The part of the communication that was hidden under compute; not a number where nothing was communicated."""
        return 100 * self.overlap_ms / self.communication_ms if self.communication_ms else float("nan")


@dataclass(frozen=True)
class Lane:
    """The times of one rank inside its window, ms on its own clock; each a union."""

    compute: list[Interval]
    communication: list[Interval]
    waiting: list[Interval]
    data: list[Interval]

    @property
    def overlap(self) -> list[Interval]:
        return common(self.compute, self.communication)


def started(trace: Trace, window: Window) -> list[Collective]:
    """A collective belongs to the step in which it started.

    Where more ranks than cores run, gloo's record of one can end after its rank has used the result and gone on: its
    thread got no core to end it. The next step would seem to overlap with communication that is over.
    """
    return [one for one in trace.collectives if window.start <= one.start < window.end]


def make_lane(trace: Trace, window: Window, waiting: Sequence[Interval]) -> Lane:
    inside = [(window.start, window.end)]
    communicating = union((one.start, one.end) for one in started(trace, window))
    return Lane(
        compute=common(trace.compute, inside),
        communication=common(communicating, inside),
        waiting=common(union(when for when in waiting if when[0] >= window.start), inside),
        data=common(trace.data, inside),
    )


def waiting_times(matches: Sequence[Match], shifts: Sequence[float]) -> list[list[Interval]]:
    """For each trace, the times from when it entered a collective until the last rank did, on its own clock."""
    found: list[list[Interval]] = [[] for _ in shifts]
    for one in matches:
        last = max(part.start + shifts[position] for position, part in one.parts.items())
        for position, part in one.parts.items():
            until = min(last - shifts[position], part.end)
            if until > part.start:
                found[position].append((part.start, until))
    return found


def share(lane: Lane, window: Window) -> Share:
    whole = window.end - window.start
    busy = union([*lane.compute, *lane.communication, *lane.data])
    sums = (
        whole,
        length(lane.compute),
        length(lane.communication),
        length(lane.overlap),
        length(lane.waiting),
        length(lane.data),
        whole - length(busy),
    )
    return Share(*(total / len(window.steps) for total in sums))


def mean_share(shares: Sequence[Share]) -> Share:
    return Share(*(sum(getattr(one, field.name) for one in shares) / len(shares) for field in fields(Share)))
