"""Does the machine's own name lead back to it?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine

SLOW = 2.0  # seconds
# ProcessGroupGloo::createDefaultDevice: the name's address if this machine can listen there, else loopback.
GLOO = (
    "gloo looks it up to choose a network interface, and falls back to loopback with a warning: enough on one "
    "machine, useless between two. The cells of this course choose loopback themselves."
)


def check(machine: Machine) -> Finding:
    name, cure = machine.hostname, f"Add a line to /etc/hosts: 127.0.1.1 {machine.hostname}"
    if not machine.localhost:
        return Finding(
            "hostname",
            "problem",
            "the name localhost does not lead to this machine",
            "torchrun --standalone meets its ranks there.",
            "Add a line to /etc/hosts: 127.0.0.1 localhost",
        )
    if machine.address is None:
        return Finding("hostname", "warning", f"this machine's name ({name}) does not resolve", GLOO, cure)
    if not machine.address_here:
        found = f"this machine's name ({name}) leads to {machine.address}, which is not this machine"
        return Finding("hostname", "warning", found, GLOO, f"Correct it in /etc/hosts or DNS. {cure}")
    if machine.lookup_seconds is not None and machine.lookup_seconds > SLOW:
        found = f"this machine's name took {machine.lookup_seconds:g} seconds to look up"
        why = "Every rank looks it up when a gloo group is made, and the others wait."
        return Finding("hostname", "warning", found, why, cure)
    if machine.address.startswith("127.") or machine.address == "::1":
        return Finding(
            "hostname",
            "ok",
            "this machine's name leads to its loopback interface",
            "Right for one machine. With several, give torchrun the address that the others see, and "
            "GLOO_SOCKET_IFNAME the interface.",
        )
    return Finding("hostname", "ok", "this machine's name leads to a network address", "Ranks can find each other.")
