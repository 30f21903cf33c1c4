"""Numbers in the short form that nvidia-smi and the kernel use."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """`ranges([0, 1, 2, 8])` is "0–2, 8"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in parts)


def short(numbers: Iterable[int]) -> str:
    """The same, never long: `short(range(0, 128, 2))` is "0, 2, … 126", how many two-processor servers count."""
    ordered = sorted(numbers)
    text = ranges(ordered)
    if text.count(",") < 4:
        return text
    return f"{ordered[0]}, {ordered[1]}, … {ordered[-1]}"
