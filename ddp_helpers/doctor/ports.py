"""Can the ranks open a port to meet at?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine


def check(machine: Machine) -> Finding:
    if not machine.free_port:
        return Finding(
            "ports",
            "problem",
            "no port can be opened on the loopback interface",
            "Ranks meet at a port; without one none of them gets past init_process_group.",
            "Is the lo interface up, and is the sandbox you run in allowed to listen?",
        )
    if not machine.loopback:
        return Finding(
            "ports",
            "problem",
            "a port can be opened, but no connection to it arrives",
            "Ranks meet at a port; here each would wait for the others until the timeout.",
            "A firewall, VPN or sandbox on this machine stops connections to 127.0.0.1: allow them.",
        )
    if not machine.port_29500_free:
        return Finding(
            "ports",
            "note",
            "free ports to be had; 29500, a common default, is taken",
            "It matters only to scripts that insist on that port.",
            "Leave --master-port out: torchrun on one machine then takes a free one (torch 2.9: with --standalone).",
        )
    return Finding("ports", "ok", "free ports to be had", "Leave --master-port out, and torchrun takes a free one.")
