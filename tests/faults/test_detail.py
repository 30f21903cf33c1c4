"""Nobody is sent into a crash: with gloo, DDP under TORCH_DISTRIBUTED_DEBUG=DETAIL ends in SIGSEGV (torch 2.14.1).

To tell of it is no advice. What is shown alone (a record, a hint, a line of the doctor's) must warn in the same text.
A lesson may lead into the trap and warn later, but no paragraph of it may recommend DETAIL without the warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_notebooks import ROOT

from ddp_helpers.faults import catalogue

CODE = sorted(path for path in (ROOT / "ddp_helpers").rglob("*.py") if path.parent.name != "scripts")
SCRIPTS = sorted((ROOT / "ddp_helpers/faults/scripts").glob("*.py"))
PROSE = [*sorted((ROOT / "notebooks/source").glob("*.md")), *(ROOT / f"{n}.md" for n in ("README", "INSTRUCTOR"))]
DETAIL = re.compile(r"\bDETAIL\b")
WARNS = re.compile(
    r"never[^.]{0,40}(?:DETAIL|DDP)|DETAIL[^.]{0,60}never|DDP[^.]{0,60}crash|crash[^.]{0,40}DDP|raw collectives only",
    re.IGNORECASE,
)
ADVISES = re.compile(
    r"\b(?:set|use|try|export|add|start|run|rerun|switch|turn|recommend\w*|help\w*|instead)\b[^.]*\bDETAIL\b"
    r"|\bDETAIL\b[^.]*\b(?:helps|finds|names|shows|tells|is better|is safe)\b|DEBUG=DETAIL\s+(?:torchrun|python)",
    re.IGNORECASE,
)
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRAPS = re.compile(r"\b(?:DDP|DistributedDataParallel)\((?!.*process_group=)")


def texts(source: str) -> Iterator[str]:
    """The strings of a Python file: adjacent ones are one, and so is an f-string."""
    inside: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            inside |= {id(part) for part in parts}
            yield "…".join(str(part.value) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def careless(text: str) -> bool:
    """Whether a text that is shown alone names DETAIL, as more than a value, and does not warn."""
    return bool(DETAIL.search(text)) and text.strip() != "DETAIL" and not WARNS.search(text)


def careless_advice(lesson: str) -> list[str]:
    """The paragraphs of a lesson that recommend DETAIL without a warning. What others say stands in quotes."""
    paragraphs = re.split(r"\n\s*\n", CELL.sub("", lesson))
    return [p for p in paragraphs if ADVISES.search(re.sub(r'"[^"]*"', "", p)) and not WARNS.search(p)]


def careless_code(source: str) -> bool:
    """DDP under DETAIL, and not in a group of its own that was made after the level was lowered."""
    return bool(DETAIL.search(source)) and bool(WRAPS.search(source))


def test_records() -> None:
    told = [text for fault in catalogue() for text in (fault.means, fault.sure, fault.cure) if DETAIL.search(text)]
    assert told and not list(filter(careless, told))


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT / "ddp_helpers").as_posix())
def test_hints_the_doctor_and_all_other_texts(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    if DETAIL.search(source):
        assert not list(filter(careless, texts(source)))


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.stem)
def test_lessons(path: Path) -> None:
    lesson = path.read_text(encoding="utf-8")
    if DETAIL.search(lesson):
        assert not careless_advice(lesson)
        assert WARNS.search(CELL.sub("", lesson)), "DETAIL is named, and nowhere does the text warn"
        assert not [cell for cell in CELL.findall(lesson) if careless_code(cell)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_reproductions(path: Path) -> None:
    assert not careless_code(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "Set TORCH_DISTRIBUTED_DEBUG=DETAIL and look again.",
        "To see more, rerun it with `TORCH_DISTRIBUTED_DEBUG=DETAIL`.",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun train.py",
        "INFO is good. DETAIL finds the rank at once.",
    ],
)
def test_advice_is_seen(text: str) -> None:
    assert careless(text) and careless_advice(f"A lesson.\n\n{text}\n\nNever set DETAIL for a script with DDP.\n")


@pytest.mark.parametrize(
    "text",
    [
        "Set it to INFO. Never DETAIL: DDP crashes under it.",
        "Under DETAIL `DistributedDataParallel(…)` itself, that is DDP, crashes.",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL, for raw collectives only, since DDP crashes under it with gloo.",
    ],
)
def test_a_warning_is_no_advice(text: str) -> None:
    assert not careless(text) and not careless_advice(text)


def test_a_trap_that_the_lesson_springs_is_no_advice() -> None:
    assert not careless_advice('The message says: "set it to either INFO or DETAIL".\n\nDETAIL must be better still.')
    assert careless_code("os.environ['TORCH_DISTRIBUTED_DEBUG'] = 'DETAIL'\nmodel = DDP(model)\n")
    assert not careless_code("set_debug_level(DETAIL)\nmodel = DDP(model, process_group=dist.new_group())\n")
    assert list(texts("x = f'set {name}=DETAIL' + 'now'")) == ["set …=DETAIL", "now"]
