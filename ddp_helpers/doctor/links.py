"""How are the GPUs joined, and can they read each other's memory?"""

from __future__ import annotations

from collections import Counter

from .finding import Finding
from .machine import Link, Machine
from .visible import visible_gpus


def check(machine: Machine) -> Finding:
    shown = {gpu.index for gpu in visible_gpus(machine)}
    links = [link for link in machine.links if link.a in shown and link.b in shown]
    if len(shown) < 2:
        return Finding("links", "ok", "nothing to join: fewer than two GPUs", "Only jobs with several GPUs need links.")
    if not links:
        return Finding("links", "note", "the driver does not tell how the GPUs are joined", "Ask nvidia-smi topo -m.")
    found = describe(links)
    blocked = [link for link in links if link.peer is False]
    if blocked:
        return Finding(
            "links",
            "note",
            f"{found}; {len(blocked)} of {len(links)} pairs cannot read each other's memory",
            "NCCL then copies through the host's memory, which is slower.",
        )
    if all(link.kind.startswith("NV") for link in links):
        return Finding("links", "ok", found, "Every pair has NVLink, the fastest way between GPUs.")
    return Finding(
        "links",
        "note",
        found,
        "Pairs without NVLink talk over PCIe, and SYS pairs also across the connection between the processors. "
        "Everything works; large models lose time here.",
    )


def describe(links: list[Link]) -> str:
    """In words: 28 pairs: NV18, or 6 pairs: 4 SYS, 2 NV2."""
    kinds = Counter(link.kind for link in links)
    names = next(iter(kinds)) if len(kinds) == 1 else ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    return f"{len(links)} pair{'s' if len(links) > 1 else ''}: {names}"
