"""Are Python and torch new enough, and does torchvision belong to this torch?"""

from __future__ import annotations

import re

from .finding import Finding
from .machine import Machine

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 9)


def check(machine: Machine) -> Finding:
    if machine.torch_error:
        return _broken(machine)
    if machine.torch is None:
        return Finding(
            "software",
            "problem",
            f"Python {machine.python}, no torch",
            "Nothing in this course runs without torch.",
            "Install the package with its dependencies (the README's first command), into the Python of this kernel.",
        )
    found = f"Python {machine.python}, torch {machine.torch}"
    if _version(machine.python) < OLDEST_PYTHON or _version(machine.torch) < OLDEST_TORCH:
        wanted = "Python {}.{} and torch {}.{}".format(*OLDEST_PYTHON, *OLDEST_TORCH)
        return Finding("software", "problem", found, f"The lessons need at least {wanted}.", "Make a new environment.")
    clash = _clash(machine)
    if clash:
        return Finding(
            "software",
            "problem",
            f"{found}, torchvision {machine.torchvision} {clash}",
            "torchvision is compiled against one torch. With another, importing it fails, often with “operator "
            "torchvision::nms does not exist”.",
            "Install both with one command and from one place: pip install --force-reinstall torch torchvision.",
        )
    return Finding("software", "ok", found, "New enough for every lesson.")


def _broken(machine: Machine) -> Finding:
    return Finding(
        "software",
        "problem",
        f"Python {machine.python}, and torch {machine.torch or ''} cannot be imported: {machine.torch_error}",
        "Nothing in this course runs without torch.",
        "A file or folder of your own named torch? Give it another name. Otherwise install torch anew, into a new "
        "environment; LD_LIBRARY_PATH may lead to libraries of another CUDA: unset it.",
    )


def _clash(machine: Machine) -> str | None:
    """How torchvision says that it does not belong to this torch; None where it does, or where it does not say."""
    needs, torch, tag = machine.torchvision_needs, machine.torch or "", machine.torchvision_cuda
    # Up to 0.28 a torchvision names its torch exactly, from 0.29 on as a lower bound.
    if needs and needs.startswith("==") and _numbers(needs) != _numbers(torch)[: len(_numbers(needs))]:
        return f"(which needs torch {needs})"
    if needs and needs.startswith(">=") and _numbers(torch) < _numbers(needs):
        return f"(which needs torch {needs})"
    # torchvision itself compares the major versions of CUDA when it is imported.
    if machine.torch_cuda and tag and tag.startswith("cu") and tag[2:4] != machine.torch_cuda.split(".")[0]:
        return f"built for CUDA {tag[2:4]} (torch for CUDA {machine.torch_cuda})"
    return None


def _numbers(text: str) -> tuple[int, ...]:
    """`">=2.14.0"` and `"2.14.0a0+cu130"` are both (2, 14, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _version(text: str) -> tuple[int, ...]:
    major, minor = [*text.split("."), "0"][:2]
    return int(major), int("".join(character for character in minor if character.isdigit()) or 0)
