"""Sets of times, as sorted lists of (start, end) that do not touch."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """`union([(0, 2), (1, 3), (5, 6)])` is [(0, 3), (5, 6)]. Gaps up to `gap` are closed."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def common(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """Where both are, of two unions: `common([(0, 3)], [(1, 2), (2.5, 9)])` is [(1, 2), (2.5, 3)]."""
    shared, one, two = [], 0, 0
    while one < len(first) and two < len(second):
        start, end = max(first[one][0], second[two][0]), min(first[one][1], second[two][1])
        if start < end:
            shared.append((start, end))
        if first[one][1] < second[two][1]:
            one += 1
        else:
            two += 1
    return shared


def without(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """The first union less the second: `without([(0, 3)], [(1, 2)])` is [(0, 1), (2, 3)]."""
    if not first:
        return []
    edges = [first[0][0], *(edge for interval in second for edge in interval), first[-1][1]]
    holes = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    return common(first, holes)


def length(intervals: Iterable[Interval]) -> float:
    """How long they last together: `length([(0, 2), (5, 6)])` is 3."""
    return sum(end - start for start, end in intervals)
