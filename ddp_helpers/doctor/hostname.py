"""Does the machine's own name lead back to it?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine


def check(machine: Machine) -> Finding:
    if machine.address is None:
        return Finding(
            "hostname",
            "warning",
            f"this machine's name ({machine.hostname}) does not resolve",
            "gloo looks it up to choose a network interface, and falls back to loopback with a warning: enough on one "
            "machine, useless between two. The cells of this course choose loopback themselves.",
            f"Add a line to /etc/hosts: 127.0.1.1 {machine.hostname}",
        )
    if machine.address.startswith("127."):
        return Finding(
            "hostname",
            "ok",
            "this machine's name leads to its loopback interface",
            "Right for one machine. With several, give torchrun the address that the others see.",
        )
    return Finding("hostname", "ok", "this machine's name leads to a network address", "Ranks can find each other.")
