"""The colour of each rank, the same in logs, plots and explorers.

Source of the colours: M. Okabe and K. Ito, "Color Universal Design" (2008), eight colours that people with the common
kinds of colour blindness can tell apart. Their black is replaced by a dark grey, which is seen on dark pages too. The
order is ours: the first four, which the lessons use most, are further apart for colour-blind eyes than in theirs.
"""

from __future__ import annotations

RANK_COLOURS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#CC79A7",  # reddish purple
    "#F0E442",  # yellow
    "#4D4D4D",  # dark grey
)

BLACK = "#000000"
WHITE = "#FFFFFF"

PAPER = "#FFFFFF"  # pictures bring their own white page, so that they read alike on light and dark themes
TEXT = "#222222"
FAINT = "#595959"  # 7:1 on white: small print
LINE = "#8A8A8A"
BOX = "#F3F3F3"
ALARM = "#D55E00"


def colour(rank: int) -> str:
    """`colour(0)` is "#0072B2", blue. After eight ranks the colours come round again; the number tells them apart."""
    return RANK_COLOURS[rank % len(RANK_COLOURS)]


def ink(rank: int) -> str:
    """Black or white, whichever reads better on `colour(rank)`; its contrast is at least 4.5 (WCAG 2.1, level AA)."""
    return max((BLACK, WHITE), key=lambda text: contrast(text, colour(rank)))


def contrast(a: str, b: str) -> float:
    """The contrast of two colours, from 1 (none) to 21 (black on white). Source of the formula: WCAG 2.1."""
    brighter, darker = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
