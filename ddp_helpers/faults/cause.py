"""The log names a cause: which rank, where, who failed in the same way, and who only fell with it."""

from __future__ import annotations

from .case import Case
from .collect import NEAR, OUTER
from .events import Event
from .explanation import Evidence, Explanation
from .fault import Fault
from .finding import ORDER, Finding, died, place, short

NAMED = ("abort-at-exit", "interrupted")  # the end of a run, and all there is to say


def caused(case: Case, best: Finding) -> Explanation:
    best = _better_in_chain(case, best)
    event = _exception_of(case, best)
    outside = best.fault.kind == "stop" or event.in_agent
    rank = best.event.rank if outside else _rank(case, best)
    same = _same(case, best, rank)
    victims = _victims(case, rank, same)
    named = not best.known or best.fault.kind not in ("general", "end") or best.fault.id in NAMED
    who = "torchrun itself" if event.in_agent else "the job" if rank is None else f"rank {rank}"
    verb = "failed first" if rank is not None and victims else "failed"
    verb = "was stopped" if best.fault.kind == "stop" else verb
    return Explanation(
        known=named,
        headline=f"{who} {verb}: {died(best.fault) or short(event)}",
        root_rank=None if outside else rank,
        exception=str(event) if event.name else "",
        place=place(event),
        evidence=_evidence(case, best, event),
        same=same,
        victims=victims,
        faults=_faults(case, best),
        missing="" if named else f"The log says what kind of failure it was, not its cause. {best.fault.sure}",
    )


def _better_in_chain(case: Case, best: Finding) -> Finding:
    """Of exceptions that came out of one another, the one that the catalogue knows; else the last."""
    if best.known:
        return best
    events = case.record.events
    at = events.index(best.event)
    while at + 1 < len(events) and events[at + 1].chained and events[at + 1].rank == best.event.rank:
        at += 1
        best = next((f for f in case.findings if f.event is events[at]), best)
    return best


def _exception_of(case: Case, finding: Finding) -> Event:
    """The exception to show: that of the message, or the one that the same process raised right after it."""
    events, rank = case.record.events, finding.event.rank
    if finding.fault.id == "worker-raises":  # its true exception follows, under "Original Traceback"
        inner = (e for e in events if finding.line < e.start <= finding.line + NEAR)
        return next((e for e in inner if e.rank == rank and e.original), finding.event)
    if finding.event.name or finding.fault.kind == "death":
        return finding.event
    near = (e for e in events if e.start <= finding.line <= e.line + NEAR and not OUTER.search(e.name))
    return next((e for e in near if e.rank == rank and e.name), finding.event)


def _rank(case: Case, best: Finding) -> int | None:
    """The rank of the cause: as its line says, as the same message says elsewhere, as torchrun's table says."""
    if best.event.rank is not None:
        return best.event.rank
    told = (f.event.rank for f in case.findings if f.fault is best.fault and best.known)
    return next((rank for rank in told if rank is not None), case.first)


def _same(case: Case, best: Finding, rank: int | None) -> tuple[int, ...]:
    """Ranks that failed in the same way."""
    if rank is None:
        return ()
    if best.known:
        alike = {f.event.rank for f in case.findings if f.fault is best.fault and f.event.name == best.event.name}
    else:
        alike = {f.event.rank for f in case.findings if not f.known and f.event.message == best.event.message}
    return tuple(sorted(r for r in alike | _nameless(case, best) if r is not None and r != rank))


def _nameless(case: Case, best: Finding) -> set[int | None]:
    """Ranks of the table for the tracebacks without a rank that say the same."""
    if best.event.rank is not None or case.first is None:
        return set()
    alike = {f.event.line for f in case.findings if f.event.rank is None and str(f.event) == str(best.event)}
    code = case.record.exits[case.first].code if case.first in case.record.exits else 1
    others = [e.rank for e in case.record.exits.values() if e.code == code and e.rank != case.first]
    return set(others[: len(alike) - 1])


def _victims(case: Case, rank: int | None, same: tuple[int, ...]) -> tuple[int, ...]:
    fell = {f.event.rank for f in case.findings if f.order > ORDER["death"] and f.fault.kind != "warning"}
    fell |= {e.rank for e in case.record.exits.values() if e.code != 0}
    own = {f.event.rank for f in case.findings if f.order <= ORDER["death"]}
    return tuple(sorted(r for r in fell - own if r is not None and r != rank and r not in same))


def _faults(case: Case, best: Finding) -> tuple[Fault, ...]:
    """The likeliest first: of several records with the same message, the one that asks for more evidence."""
    near = [f for f in case.findings if f.event is best.event and f.order == best.order and f.known]
    near.sort(key=lambda f: (-len(f.fault.where) - len(f.fault.also), f is not best))
    found = [f.fault for f in near] or [best.fault]
    found += [f.fault for f in case.findings if f.order == 0 and f.known and best.order == 0]
    return tuple(dict.fromkeys(found))[:3]


def _evidence(case: Case, best: Finding, event: Event) -> tuple[Evidence, ...]:
    wanted = [] if best.line < 0 else [best.line]
    if event.name and event.line != best.line:
        wanted.append(event.line)
    return tuple(case.quote(index) for index in wanted)
