"""The log does not hold the cause: only consequences, a rank that left without a word, or no failure at all."""

from __future__ import annotations

from .case import Case
from .catalogue import by_id
from .explanation import Explanation, ranks
from .finding import Finding, one_a_rank


def unknown(case: Case) -> Explanation:
    """Something failed, and what is here are only consequences."""
    victims = [f for f in case.findings if f.fault.kind == "victim"]
    told = [f for f in victims if f.fault.id not in ("torchrun-table", "exit-code-15")]
    return _left_early(case, told) or _elsewhere(case, told, victims)


def _elsewhere(case: Case, told: list[Finding], victims: list[Finding]) -> Explanation:
    """Where to look. `told`: what ranks themselves say."""
    rank = case.first
    who = "the first rank that failed" if rank is None else f"rank {rank}"
    lost = "What is here are only consequences. " if told else ""
    silent = case.world() - {f.event.rank for f in told}
    if told and len(silent) == 1:
        lost += f"Rank {silent.pop()} shows no error here: begin with its output. "
    missing = (
        f"The log does not hold the cause. {lost}Look for the first traceback of {who}, above what you have here, "
        "or in that rank's own log (torchrun --log-dir DIR --redirects 3)."
    )
    return Explanation(
        known=False,
        headline=f"the cause is not in this log{'' if rank is None else f'; torchrun names rank {rank} first'}",
        root_rank=rank if not told else None,
        evidence=case.quotes(one_a_rank(told or victims), 3),
        victims=tuple(sorted({f.event.rank for f in told if f.event.rank is not None})),
        missing=missing,
    )


def _left_early(case: Case, told: list[Finding]) -> Explanation | None:
    """Only "the other has gone", and the other has no error: it left early, if nothing is missing here."""
    fell = {f.event.rank for f in told if f.fault.id == "peer-left" and f.event.rank is not None}
    if not fell:
        return None
    exits = case.record.exits
    fine = sorted(r for r in case.world() - fell if exits.get(r) is None or not exits[r].code)
    certain = case.failed is not None and bool(fine)
    who = f"rank {fine[0]} left early" if len(fine) == 1 else "a rank left early"
    missing = "The log holds no error of the rank that left: its log is missing here, or it had none."
    return Explanation(
        known=certain,
        headline=f"{who}: {ranks(tuple(sorted(fell))).lower()} lost it, and no other rank shows an error",
        root_rank=fine[0] if len(fine) == 1 else None,
        evidence=case.quotes(one_a_rank(told), 3),
        victims=tuple(sorted(fell)),
        faults=(by_id()["one-rank-leaves-early"],),
        missing="" if certain else missing,
    )


def nothing(case: Case) -> Explanation:
    """No failure; perhaps a warning."""
    warned = [f for f in case.findings if f.fault.kind == "warning"]
    return Explanation(
        known=False,
        headline="this log shows no failure" + (", but a warning" if warned else ""),
        evidence=case.quotes(one_a_rank(warned), 2),
        faults=tuple(dict.fromkeys(f.fault for f in warned))[:2],
        missing="" if warned else "If the job stopped all the same: is this the end of the log, and all ranks' output?",
    )
