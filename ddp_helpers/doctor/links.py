"""How are the GPUs joined, and can they read each other's memory?"""

from __future__ import annotations

from collections import Counter

from .finding import Finding
from .machine import Link, Machine
from .visible import visible_gpus


def check(machine: Machine) -> Finding:
    gpus = {gpu.index: gpu for gpu in visible_gpus(machine)}
    links = [link for link in machine.links if link.a in gpus and link.b in gpus]
    if len(gpus) < 2:
        why = "Only jobs with several GPUs need links."
        return Finding("links", "ok", "nothing to join: fewer than two GPUs", why, minor=True)
    if not links:
        return _unknown(machine)
    found = describe(links)
    translated = [link for link in links if _crosses_iommu(link, gpus[link.a].iommu, gpus[link.b].iommu)]
    if translated:
        return Finding(
            "links",
            "warning",
            f"{found}; {len(translated)} of {len(links)} pairs read each other's memory over PCIe through an IOMMU",
            "The IOMMU can make that slow, or NCCL hang in its first collective (NVIDIA/nccl#257, #631).",
            "If it hangs, NCCL_P2P_DISABLE=1 shows whether this is why. Cure: iommu=pt on the kernel's command line, "
            "or the IOMMU (VT-d, AMD-Vi) off in the BIOS.",
        )
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


def _unknown(machine: Machine) -> Finding:
    found = "the driver does not tell how the GPUs are joined"
    if machine.wsl:
        why = (
            "So it is under WSL. Slow runs and crashes with several GPUs have been reported there (microsoft/WSL#9928)."
        )
        return Finding("links", "note", found, why, "If NCCL hangs or crashes, try NCCL_P2P_DISABLE=1.")
    return Finding("links", "note", found, "Ask nvidia-smi topo -m.")


def _crosses_iommu(link: Link, *treatments: str | None) -> bool:
    """Direct access over PCIe whose addresses the kernel translates ("DMA", "DMA-FQ"; "identity" is harmless)."""
    over_pcie = link.peer is True and not link.kind.startswith("NV")
    return over_pcie and any((treatment or "").startswith("DMA") for treatment in treatments)


def describe(links: list[Link]) -> str:
    """In words: 28 pairs: NV18, or 6 pairs: 4 SYS, 2 NV2."""
    kinds = Counter(link.kind for link in links)
    names = next(iter(kinds)) if len(kinds) == 1 else ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    return f"{len(links)} pair{'s' if len(links) > 1 else ''}: {names}"
