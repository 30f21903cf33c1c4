"""Are Python and torch new enough?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 9)


def check(machine: Machine) -> Finding:
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
    return Finding("software", "ok", found, "New enough for every lesson.")


def _version(text: str) -> tuple[int, ...]:
    major, minor = [*text.split("."), "0"][:2]
    return int(major), int("".join(character for character in minor if character.isdigit()) or 0)
