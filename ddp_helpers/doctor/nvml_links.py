"""How NVML says the GPUs are joined."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from .machine import Link


def links(nvml: Any, handles: dict[int, Any]) -> Iterator[Link]:
    """Every pair of GPUs of which the driver tells how it is joined (under WSL it does not)."""
    for a, b in combinations(handles, 2):
        kind = _kind(nvml, handles[a], handles[b])
        if kind is not None:
            yield Link(a, b, kind, _peer(nvml, handles[a], handles[b]))


def _kind(nvml: Any, a: Any, b: Any) -> str | None:
    lanes = _nvlinks(nvml, a, b)
    if lanes:
        return f"NV{lanes}"
    names = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
    }
    try:
        return names.get(nvml.nvmlDeviceGetTopologyCommonAncestor(a, b), "SYS")
    except nvml.NVMLError:
        return None


def _nvlinks(nvml: Any, a: Any, b: Any) -> int:
    """NVLinks from `a` to `b`: those that end at `b`, or else, when both hang on NVLink switches, all that `a` has."""
    other = bus_id(nvml, b)
    ends = _nvlink_ends(nvml, a)
    direct = sum(1 for kind, bus in ends if kind == nvml.NVML_NVLINK_DEVICE_TYPE_GPU and bus == other)
    switch = nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    through = sum(1 for kind, _ in ends if kind == switch)
    return direct or (through if any(kind == switch for kind, _ in _nvlink_ends(nvml, b)) else 0)


def _nvlink_ends(nvml: Any, handle: Any) -> list[tuple[int, str]]:
    ends = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link):
                kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
                ends.append((kind, text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)))
        except nvml.NVMLError:  # this card has fewer links, or none
            continue
    return ends


def nvlinks_up(nvml: Any, handle: Any) -> int | None:
    """How many NVLinks of this GPU are up; None for a GPU without any."""
    states = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError:
            continue
    return sum(states) if states else None


def _peer(nvml: Any, a: Any, b: Any) -> bool | None:
    read = 0  # pynvml 13 has NVML_P2P_CAPS_INDEX_READ = (0,), a stray comma that ctypes would refuse
    try:
        status = nvml.nvmlDeviceGetP2PStatus(a, b, read)
    except nvml.NVMLError:
        return None
    return bool(status == nvml.NVML_P2P_STATUS_OK)


def bus_id(nvml: Any, handle: Any) -> str:
    return text(nvml.nvmlDeviceGetPciInfo(handle).busId)


def text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
