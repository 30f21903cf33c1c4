"""What the Linux kernel says of NVIDIA cards on the PCI bus, with or without a driver."""

from __future__ import annotations

from pathlib import Path

DEVICES = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
DISPLAYS = ("0x0300", "0x0302")  # the class of graphics cards, and of cards without a screen


def count_cards(devices: Path = DEVICES) -> int:
    """NVIDIA GPUs on the bus. A container sees the host's, even those it may not use."""
    return sum(
        _text(card / "vendor") == NVIDIA and (_text(card / "class") or "").startswith(DISPLAYS)
        for card in devices.glob("*")
    )


def numa(bus: str, devices: Path = DEVICES) -> int | None:
    node = _text(_folder(bus, devices) / "numa_node")
    return int(node) if node and node.isdigit() else None  # -1: a machine with one node


def iommu(bus: str, devices: Path = DEVICES) -> str | None:
    """How the kernel treats the card's addresses: "identity" (as they are), "DMA" or "DMA-FQ" (translated)."""
    return _text(_folder(bus, devices) / "iommu_group" / "type")


def _folder(bus: str, devices: Path) -> Path:
    # The kernel writes the PCI domain with four digits, NVML with eight.
    domain, _, rest = bus.lower().partition(":")
    return devices / f"{domain[-4:]}:{rest}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
