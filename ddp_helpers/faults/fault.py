"""One known failure: what you see, what it means, how to be sure, the cure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
# What a message says of the cause, from most to least. Where a log holds several, the first of these is believed.
KINDS = (
    "cause",  # the message names it
    "death",  # the system ended a rank: the message is all there is
    "general",  # something went wrong in a class of things; another line says what
    "wait",  # a rank waited for one that did not come: that other one is at fault
    "end",  # how it ended, when nothing says why
    "stop",  # somebody stopped the job from outside; what ranks say after that counts for nothing
    "warning",  # a run that goes on says it too
    "victim",  # a consequence of what another rank did; never the cause
    "silent",  # no message at all: the numbers are wrong
)
NEEDS = ("cpu", "gpu", "two nodes", "container")

# What gloo says when it has waited for longer than the timeout of the group; which of the two is a matter of chance.
GLOO_TIMED_OUT = (
    r"Timed out waiting \d+ms for (?:recv|send) operation to complete",
    "Application timeout caused pair closure",
)


@dataclass(frozen=True)
class Fault:
    """A record of the catalogue.

    see           the message as it is printed; of a silent fault, what one notices
    means         what it says about the script or the machine
    sure          how to make certain that it is this
    cure          what to do
    lesson        the number of the lesson that treats it
    needs         where it can happen: "cpu" (anywhere), "gpu", "two nodes", "container"
    patterns      regular expressions, each for one line of a log without its rank prefix; one of them is enough
    where         one of these must be found in the message's traceback, too ("in barrier\\n" ends a frame's line)
    also          one of these must be found elsewhere in the log, too
    same_message  ids of faults that print the same message; the place or the other ranks tell them apart
    wrong, right  of a silent fault: the numbers that its reproduction prints ("" where they vary)
    no_script     why a fault that needs no special machine has no reproduction
    source        public reports of it
    """

    id: str
    see: str
    means: str
    sure: str
    cure: str
    lesson: str
    kind: str = "cause"
    needs: str = "cpu"
    patterns: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    same_message: tuple[str, ...] = ()
    wrong: str = ""
    right: str = ""
    no_script: str = ""
    source: str = ""

    @property
    def silent(self) -> bool:
        return self.kind == "silent"

    @property
    def victim(self) -> bool:
        return self.kind == "victim"

    @property
    def script(self) -> Path | None:
        """The script that reproduces it, for two ranks on any machine."""
        path = SCRIPTS / f"{self.id}.py"
        return path if path.exists() else None
