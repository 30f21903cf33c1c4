"""Which of the things found in a log is the cause: an exception that is no echo before the death of a rank, and so on.

collect.py finds them, cause.py, waits.py and no_cause.py put the answer into an Explanation.
"""

from __future__ import annotations

from .case import Case
from .cause import caused
from .collect import collect
from .events import Record
from .explanation import Explanation
from .finding import ORDER, Finding
from .lines import Line
from .no_cause import nothing, unknown
from .waits import waited


def judge(lines: list[Line], record: Record, failed: bool | None = None) -> Explanation:
    """`failed`: whether the run failed; None when nobody knows."""
    case = Case(lines, record, failed)
    case.findings = collect(case)
    found = [finding for finding in case.findings if finding.order <= ORDER["end"]]
    if failed is False:
        return nothing(case)
    if not found:
        return unknown(case) if _has_failed(case) else nothing(case)
    best = min(found, key=lambda finding: _worth(case, finding))
    if best.order == ORDER["wait"]:
        return waited(case, [finding for finding in found if finding.order == ORDER["wait"]])
    return caused(case, best)


def _worth(case: Case, finding: Finding) -> tuple[int, bool, int]:
    """The smallest is believed: by its kind, then the rank that torchrun names, then the first in the log."""
    rank = finding.event.rank
    other = rank is not None and case.first is not None and rank != case.first
    return finding.order, other, finding.line


def _has_failed(case: Case) -> bool:
    told = case.record.table or case.record.agent is not None
    return bool(case.failed) or told or any(f.fault.kind == "victim" for f in case.findings)
