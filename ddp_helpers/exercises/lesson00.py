"""Exercises of lesson 00: read three doctor reports and say what to do first.

Each check is a pure function: it takes the learner's answer and returns None when it is right, or the hint for that
mistake. The verdict follows from the recorded machine's findings, as `doctor()` computes them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..doctor import Finding, Report, doctor
from ..doctor.machine import Gpu
from ..doctor.visible import same_model

NOT_YET = "Not attempted yet: put your answer in place of the dots, run that cell, then this one."
NOTHING = ("nothing", "none", "no", "no line")


def check_00_1(answer: object) -> str | None:
    """The healthy server: which line must be mended first?"""
    return judge_first_fix(doctor("8-gpu-server"), answer)


def check_00_2(answer: object) -> str | None:
    """The container: which line must be mended first?"""
    return judge_first_fix(doctor("container-64mb-shm"), answer)


def check_00_3(answer: object) -> str | None:
    """The mixed server: the value of CUDA_VISIBLE_DEVICES for one job."""
    return judge_gpus(doctor("mixed-gpus"), answer)


CHECKS: dict[str, Callable[[object], str | None]] = {"00.1": check_00_1, "00.2": check_00_2, "00.3": check_00_3}


def judge_first_fix(report: Report, answer: object) -> str | None:
    """Right is the name of the most severe line, or "nothing" where no line is a warning or a problem."""
    if _unattempted(answer):
        return NOT_YET
    if not isinstance(answer, str):
        return f"The answer is the name of one line, in quotes; yours is {_kind(answer)}."
    name = _plain(answer)
    worst = max(report.findings, key=lambda finding: finding.severity)
    if name in NOTHING:
        return _hint_for_nothing(worst)
    named = [finding for finding in report.findings if _plain(finding.name) == name]
    if named:
        return _hint_for_line(report, named[0], worst)
    aliases = {"/dev/shm": "shared memory", "dev shm": "shared memory", "shm": "shared memory", "gpu": "GPUs"}
    if name in aliases:
        return judge_first_fix(report, aliases[name])
    names = ", ".join(f'"{finding.name}"' for finding in report.findings)
    return f'There is no line {answer!r} in this report. Name one line, or "nothing". The lines are: {names}.'


def _hint_for_nothing(worst: Finding) -> str | None:
    if worst.level in ("ok", "note"):
        return None
    return f'Look for ▲ and ✘ in the first column: the line "{worst.name}" is a {worst.level}. {worst.found}.'


def _hint_for_line(report: Report, named: Finding, worst: Finding) -> str | None:
    if named.level == worst.level and worst.level in ("warning", "problem"):
        return None
    if named.level == "ok":
        return f'The line "{named.name}" is ✔: {named.found}. {named.matters} There is nothing to mend in it.'
    if named.level == "note":
        return f'The line "{named.name}" is a note, not a fault: {named.matters} {_what_a_note_asks(named)}'
    return f'The line "{named.name}" is a warning, and this report has something worse. {report.summary()}'


def _what_a_note_asks(note: Finding) -> str:
    return "It asks you to run something, not to mend something." if note.do else "A note needs no action."


def judge_gpus(report: Report, answer: object) -> str | None:
    """Right is every GPU of the largest group of one model, in any order, as in "0,2"."""
    if _unattempted(answer):
        return NOT_YET
    gpus = {str(gpu.index): gpu for gpu in report.machine.gpus}
    if not isinstance(answer, str):
        return f'The answer is text such as "0,1", as the environment holds it; yours is {_kind(answer)}.'
    chosen = [part.strip() for part in answer.split(",") if part.strip()]
    if not chosen:
        return "An empty value hides every GPU: the job would run on the processor. Name the GPUs it may see."
    unknown = [part for part in chosen if part not in gpus]
    if unknown:
        there = ", ".join(gpus)
        return f"CUDA stops reading at an entry that is no GPU, here {unknown[0]!r}. This machine's GPUs are {there}."
    if len(set(chosen)) < len(chosen):
        return "One GPU is named twice. Every rank needs a GPU of its own: NCCL refuses two ranks on one."
    return _judge_group([gpus[part] for part in chosen], same_model(report.machine.gpus))


def _judge_group(chosen: list[Gpu], best: tuple[Gpu, ...]) -> str | None:
    models = {gpu.model: gpu for gpu in chosen}
    if len(models) > 1:
        slower = min(models.values(), key=lambda gpu: gpu.memory_total)
        return (
            f"GPU {slower.index} ({slower.model}) is of another model: at every step the others would wait for it. "
            "Leave one model in the job."
        )
    if chosen[0].model == best[0].model and len(chosen) < len(best):
        missing = next(gpu for gpu in best if gpu not in chosen)
        return f"One model, right. But GPU {missing.index} is of the same model, and you leave it idle."
    if chosen[0].model != best[0].model:
        return f"One model, right. But the machine has more GPUs of another: {len(best)} × {best[0].model}."
    return None


def _unattempted(answer: object) -> bool:
    return answer is None or answer is ... or (isinstance(answer, str) and answer.strip() in ("...", "…", "?"))


def _plain(text: str) -> str:
    return " ".join(text.lower().replace("_", " ").replace("-", " ").split())


def _kind(answer: object) -> str:
    return f"{answer!r}, a {type(answer).__name__}"
