"""The doctor's report: what it says, in a terminal and in a notebook."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import html
from .finding import Finding
from .machine import Machine
from .world_size import Advice

SIGNS = {"ok": "✔", "note": "·", "warning": "▲", "problem": "✘"}
WIDTH = 110
FORMAT = 1  # of the JSON; facts and findings may be added without a new number


@dataclass(frozen=True, repr=False)
class Report:
    """`report = doctor()`; then look at `report`, `report.problems`, `report["shared memory"].do`, `report.world_size`.

    machine   the facts (ddp_helpers.doctor.machine.Machine)
    findings  one Finding a line: .name .level .found .matters .do
    advice    how many ranks to start here: .ranks .device .backend .why
    """

    machine: Machine
    findings: tuple[Finding, ...]
    advice: Advice
    shows_verdict: bool = True

    def puzzle(self) -> Report:
        """The same report without its verdict and without what to do: for someone who is to find that out."""
        return replace(self, findings=tuple(replace(f, do="") for f in self.findings), shows_verdict=False)

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "problem")

    @property
    def world_size(self) -> int:
        return self.advice.ranks

    @property
    def exit_code(self) -> int:
        """0: nothing must be mended. 1: something must."""
        return 1 if self.problems else 0

    def __getitem__(self, name: str) -> Finding:
        """The line of that name. Raises KeyError, which lists the names."""
        for finding in self.findings:
            if finding.name.lower() == name.lower():
                return finding
        raise KeyError(f"no line {name!r}; there are: {', '.join(finding.name for finding in self.findings)}")

    def summary(self) -> str:
        """The report's last word in one sentence."""
        if not self.shows_verdict:
            return "What would you do first?"
        count = {level: sum(finding.level == level for finding in self.findings) for level in SIGNS}
        if count["problem"]:
            names = ", ".join(finding.name for finding in self.problems)
            return f"Mend this first: {names}."
        if count["warning"]:
            names = ", ".join(finding.name for finding in self.findings if finding.level == "warning")
            return f"Ready, but read this: {names}."
        return "Ready: nothing here must be mended."

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The lines of the report: all but the minor ones that found nothing."""
        return tuple(finding for finding in self.findings if finding.shown)

    def silent(self) -> str:
        """The minor checks that found nothing, in one sentence."""
        names = [finding.name for finding in self.findings if not finding.shown]
        return f"Also looked at, and nothing found: {', '.join(names)}." if names else ""

    def title(self) -> str:
        article = "an" if self.machine.container == "Apptainer" else "a"
        places = [f"inside {article} {self.machine.container} container"] if self.machine.container else []
        places += ["under WSL"] if self.machine.wsl else []
        places += ["in a Slurm job"] if self.machine.slurm == "job" else []
        where = f" ({', '.join(places)})" if places else ""
        return f"Is {self.machine.name} ready?{where}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for programs. Every check is in "findings", whether or not the report shows it."""
        return {
            "format": FORMAT,
            "machine": self.machine.to_dict(),
            "findings": [asdict(finding) for finding in self.findings],
            "world_size": asdict(self.advice),
            "verdict": self.summary(),
            "exit_code": self.exit_code,
        }

    def __repr__(self) -> str:
        name = max(len(finding.name) for finding in self.shown)
        lines = [self.title()]
        if self.machine.source:
            lines += _wrap(f"recorded machine: {self.machine.source}", "  ")
        for finding in self.shown:
            lead = f"{SIGNS[finding.level]} {finding.name:<{name}}  "
            lines += _wrap(f"{finding.found}. {finding.matters}", " " * len(lead), lead)
            if finding.do:
                lines += _wrap(f"→ {finding.do}", " " * (len(lead) + 2), " " * len(lead))
        advice = self.advice
        lead = f"» {'world size':<{name}}  "
        text = f"{advice.ranks} ranks on {advice.device} with {advice.backend}. {advice.why}"
        lines += _wrap(text, " " * len(lead), lead)
        if self.silent():
            lines += _wrap(self.silent(), "  ")
        lines.append(self.summary())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html.render(self)


def _wrap(text: str, indent: str, lead: str | None = None) -> list[str]:
    first = indent if lead is None else lead
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
