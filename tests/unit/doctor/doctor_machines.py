"""Machines for the doctor's tests: healthy ones, with other facts where a test needs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddp_helpers.doctor import Finding, Machine
from ddp_helpers.doctor.machine import GIB, Cpu, Gpu, Link


def laptop(**facts: Any) -> Machine:
    """A computer without a GPU."""
    healthy = Machine(
        name="laptop",
        python="3.12.1",
        torch="2.14.1+cu130",
        torch_cuda="13.0",
        nccl="2.30.7",
        cpus=tuple(Cpu(number, number) for number in range(4)),
        memory_total=16 * GIB,
        memory_available=10 * GIB,
        shm_total=8 * GIB,
        shm_free=8 * GIB,
        hostname="laptop",
        address="127.0.1.1",
    )
    return replace(healthy, **facts)


def server(count: int = 2, **facts: Any) -> Machine:
    cards = tuple(Gpu(index, "NVIDIA A100", 40 * GIB, 0, uuid=f"GPU-{index}abc") for index in range(count))
    joined = tuple(Link(a, b, "NV12", True) for a in range(count) for b in range(a + 1, count))
    return laptop(**{"gpus": cards, "links": joined, "driver": "580.95", "driver_cuda": "13.0", **facts})


def level(finding: Finding) -> str:
    return finding.level
