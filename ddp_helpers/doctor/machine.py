"""What the doctor knows of a machine: plain facts, written to and read from JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

MIB = 2**20
GIB = 2**30
TIB = 2**40


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    name: str
    memory: int | None  # bytes; None where the driver does not tell (inside many containers)


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver numbers it (the order of the PCI bus)."""

    index: int
    model: str
    memory_total: int  # bytes
    memory_used: int  # bytes
    numa: int | None = None
    uuid: str = ""
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class Link:
    """How two GPUs are joined, in the words of `nvidia-smi topo -m`.

    NV18: 18 NVLinks. PIX: one PCIe switch. PXB: several PCIe switches. PHB: through the processor's PCIe bridge.
    NODE: two bridges of one NUMA node. SYS: through the connection between two NUMA nodes.
    """

    a: int
    b: int
    kind: str
    peer: bool | None = None  # can one GPU read the other's memory directly? None: the driver did not say


@dataclass(frozen=True)
class Cpu:
    """One logical processor: its number, and the physical core, package and NUMA node it belongs to."""

    cpu: int
    core: int
    package: int = 0
    numa: int = 0


@dataclass(frozen=True)
class Machine:
    """Facts about one machine. Sizes are in bytes; None means "not there" or "could not be found out"."""

    name: str
    source: str = ""  # for a recorded machine: the public material it was made from
    system: str = "Linux"
    python: str = ""
    torch: str | None = None
    torch_cuda: str | None = None  # the CUDA version torch was built for; None: a CPU build
    nccl: str | None = None  # the version torch prints; it proves nothing about NCCL working
    driver: str | None = None
    driver_cuda: str | None = None  # the newest CUDA version the driver can run
    nvml_error: str | None = None
    cuda_visible_devices: str | None = None
    container: str | None = None
    cpus: tuple[Cpu, ...] = ()  # those this process may run on
    cpu_limit: float | None = None  # cores' worth of time per second that the container may use
    omp_num_threads: str | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    shm_total: int | None = None
    shm_free: int | None = None
    hostname: str = ""
    address: str | None = None  # what the hostname resolves to
    free_port: bool = True  # could a free port be opened on the loopback interface?
    port_29500_free: bool = True
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def cores(self) -> int:
        """Logical processors this process may use (what `os.sched_getaffinity` says)."""
        return max(1, len(self.cpus))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Machine:
        """The machine that `to_dict` described. Raises ValueError for a fact this version does not know."""
        facts = dict(facts)
        unknown = set(facts) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"unknown facts about a machine: {', '.join(sorted(unknown))}")
        facts["cpus"] = tuple(Cpu(**cpu) for cpu in facts.get("cpus", ()))
        facts["links"] = tuple(Link(**link) for link in facts.get("links", ()))
        facts["gpus"] = tuple(_gpu(gpu) for gpu in facts.get("gpus", ()))
        return cls(**facts)


def _gpu(facts: dict[str, Any]) -> Gpu:
    holders = tuple(GpuProcess(**holder) for holder in facts.get("processes", ()))
    return Gpu(**{**facts, "processes": holders})


def size(count: float | None) -> str:
    """Bytes as people say them: `size(64 * 2**20)` is "64 MiB"."""
    if count is None:
        return "unknown"
    for unit, step in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB)):
        if count >= step:
            value = count / step
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{count / 1024:.3g} KiB"
