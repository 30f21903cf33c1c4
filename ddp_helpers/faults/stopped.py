"""A run that was stopped at its timeout: what the ranks answered when they were asked where they are."""

from __future__ import annotations

import re

from .catalogue import by_id
from .explanation import Evidence, Explanation

POSITION = re.compile(r"ranks? (?P<ranks>[\d, ]+): (?P<what>.*)")
WAITING = re.compile(r"waiting in (\w+)")


def explain_stopped(message: str) -> Explanation:
    """`message` is hang.sentence()'s: "rank 0: waiting in all_reduce #2 [2] (line 15)", one line a position."""
    positions = [found for line in message.splitlines() if (found := POSITION.match(line))]
    waiting = {kind[1] for found in positions if (kind := WAITING.match(found["what"]))}
    absent = [int(n) for found in positions if not WAITING.match(found["what"]) for n in found["ranks"].split(",")]
    evidence = tuple(Evidence(number, None, line) for number, line in enumerate(message.splitlines(), 1))[:6]
    if not waiting:
        missing = "No rank was waiting for another: the script is slow or stuck by itself, in the lines named here."
        return Explanation(
            False, "stopped at its timeout; no rank waited in a collective", missing=missing, evidence=evidence
        )
    names = " and ".join(sorted(waiting))
    differ = len(waiting) > 1
    fault = by_id()["collective-order" if differ else "collective-on-one-rank"]
    who = f"; {'ranks' if len(absent) > 1 else 'rank'} {', '.join(map(str, absent))} did not come" if absent else ""
    headline = f"stopped at its timeout: ranks waited in {names}{who}"
    root = absent[0] if len(absent) == 1 else None
    return Explanation(True, headline, root_rank=root, evidence=evidence, faults=(fault,))
