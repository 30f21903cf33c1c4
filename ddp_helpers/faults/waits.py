"""Ranks waited in vain: in which call, who did not come, or whether they are not together in one call."""

from __future__ import annotations

import re

from .case import Case
from .catalogue import by_id
from .explanation import Explanation, ranks
from .fault import Fault
from .finding import Finding, one_a_rank, place, short

WORK = re.compile(r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?")
EVALUATES = re.compile("in _sync_(?:module_)?buffers")
# Waits that another message of the same log explains more closely.
UNSPECIFIC = ("barrier-skipped", "no-rank-zero", "nccl-watchdog-timeout", "nccl-heartbeat")
IN_A_CALL = ("collective-on-one-rank", "barrier-skipped", "send-without-recv")


def waited(case: Case, waits: list[Finding]) -> Explanation:
    best = _most_specific(case, waits)
    waiting = sorted({rank for f in waits if (rank := case.rank_of_finding(f)) is not None})
    fault = _mismatch(case, waits, best.fault) or best.fault
    root = _absent(case, waiting, best, fault)
    who = f"{ranks(tuple(waiting)).lower()} waited" if waiting else "the ranks waited"
    who = "torchrun waited" if best.event.in_agent else who
    came = f"; rank {root} did not come" if root is not None and root not in waiting else ""
    general = [f.fault for f in waits if f.fault is not fault and not f.fault.where]
    return Explanation(
        known=True,
        headline=f"{who} in vain{came}: {short(best.event)}",
        root_rank=root,
        exception=str(best.event) if best.event.name else "",
        place=place(best.event),
        evidence=case.quotes(one_a_rank(waits), 4),
        victims=() if root is None else tuple(rank for rank in waiting if rank != root),
        faults=tuple(dict.fromkeys([fault, *general]))[:2],
    )


def _most_specific(case: Case, waits: list[Finding]) -> Finding:
    alone = [f for f in case.findings if f.fault.id == "peer-left" and EVALUATES.search(f.event.trace)]
    if alone:  # the others lost patience first, so that this rank says only that they have gone
        return Finding(by_id()["eval-on-rank-zero"], alone[0].event, alone[0].line)
    return min(waits, key=lambda f: (not f.fault.where, f.fault.id in UNSPECIFIC, f.line))


def _mismatch(case: Case, waits: list[Finding], said: Fault) -> Fault | None:
    """Ranks that wait in different collectives; or all in the very first one, which the GPUs do not end."""
    work = {case.rank_of_finding(f): m.groups() for f in waits if (m := WORK.search(case.lines[f.line].text))}
    if len(work) > 1 and len({number for number, _, _ in work.values()}) == 1:
        if len(set(work.values())) > 1:
            return by_id()["nccl-ranks-differ"]
        if int(next(iter(work.values()))[0]) <= 2 and _all_there(case, set(work)):
            guessed = any(f.fault.id == "nccl-barrier-device" for f in case.findings)
            return by_id()["nccl-barrier-device" if guessed else "nccl-p2p-hang"]
    if said.id not in IN_A_CALL:
        return None
    # Whoever times out first closes its connections, and the others say so in their own collective.
    lost = [f for f in case.findings if f.fault.id == "peer-left"]
    calls = {f.event.rank: f.event.collective for f in [*lost, *waits] if f.event.collective}
    return by_id()["collective-order"] if len(set(calls.values())) > 1 else None


def _all_there(case: Case, waiting: set[int | None]) -> bool:
    """Whether these are all ranks that the log knows of, and none below the last is missing from it."""
    known = case.world()
    return waiting >= known | set(range(max(known, default=0)))


def _absent(case: Case, waiting: list[int], best: Finding, fault: Fault) -> int | None:
    """The rank that did not come."""
    if fault is not best.fault and fault.id != "nccl-watchdog-timeout":
        return None  # no rank is missing: they are not together, or they cannot reach each other
    if fault.id == "eval-on-rank-zero":
        return best.event.rank
    return _behind(case) if _behind(case) is not None else _only_other(case, waiting)


def _behind(case: Case) -> int | None:
    """With NCCL's numbers: the only rank that is behind."""
    work = {case.rank_of_finding(f): int(m[1]) for f in case.findings if (m := WORK.search(case.lines[f.line].text))}
    behind = [rank for rank, number in work.items() if number == min(work.values())]
    return behind[0] if len(set(work.values())) > 1 and len(behind) == 1 else None


def _only_other(case: Case, waiting: list[int]) -> int | None:
    """The only rank that did not wait."""
    others = case.world() - set(waiting)
    return others.pop() if len(others) == 1 and waiting else None
