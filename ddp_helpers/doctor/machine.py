"""What the doctor knows of a machine: plain facts, written to and read from JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
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
    user: str | None = None
    mine: bool = False  # does it belong to whoever asks?
    orphan: bool = False  # whoever started it is gone


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver numbers it (the order of the PCI bus)."""

    index: int
    model: str
    memory_total: int  # bytes; 0 where the GPU has no memory of its own, or the driver does not tell
    memory_used: int  # bytes
    numa: int | None = None
    uuid: str = ""
    processes: tuple[GpuProcess, ...] = ()
    capability: str | None = None  # "9.0": the instruction set torch must have been built for
    busy: int | None = None  # percent of the last moment in which it computed
    compute_mode: str = "default"  # "exclusive": one process at a time. "prohibited": none
    mig: bool = False  # split into instances (Multi-Instance GPU)
    nvlinks: int | None = None  # NVLinks that are up
    fabric: str | None = None  # registration with the NVLink switches: "ready", "not ready", or an error
    iommu: str | None = None  # the kernel's word for how its PCI addresses are treated: "DMA-FQ", "identity", …
    ecc_errors: int = 0  # errors that could not be corrected, since the driver was loaded
    remap: str | None = None  # faulty memory rows: "pending" until the next reset, or "failed"
    recovery: str | None = None  # what the driver itself asks for: "reset", "reboot", "drain"
    slowdown: str | None = None  # why its clock is held down: "heat" or "power"


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
    wsl: bool = False  # Linux inside Windows
    slurm: str | None = None  # "job": inside one. "login": Slurm is here, and this is no job of it
    torch: str | None = None
    torch_error: str | None = None  # why `import torch` failed although torch is installed
    torch_hip: str | None = None  # the ROCm version of a build for AMD GPUs
    torch_archs: tuple[str, ...] = ()  # the GPU instruction sets of the build: "sm_90"
    torchvision: str | None = None
    torchvision_needs: str | None = None  # the torch it asks for, as in "==2.9.0"
    torchvision_cuda: str | None = None  # the tag of its build: "cu130", "cpu"
    torch_cuda: str | None = None  # the CUDA version torch was built for; None: a CPU build
    nccl: str | None = None  # the version torch prints; it proves nothing about NCCL working
    driver: str | None = None
    driver_cuda: str | None = None  # the newest CUDA version the driver can run
    nvml_error: str | None = None
    nvml_package: bool = True  # is nvidia-ml-py installed? Without it no GPU can be seen
    gpu_cards: int = 0  # NVIDIA GPUs on the PCI bus, whether or not a driver runs them
    gpu_errors: tuple[str, ...] = ()  # GPUs that the driver counts and cannot open
    cuda_error: str | None = None  # what CUDA said when a process of its own started it, as in "802: system not …"
    cuda_visible_devices: str | None = None
    container: str | None = None
    cpus: tuple[Cpu, ...] = ()  # those this process may run on
    cpu_limit: float | None = None  # cores' worth of time per second that the container may use
    omp_num_threads: str | None = None
    environment: dict[str, str] = field(default_factory=dict)  # variables that change what a job does
    nccl_file: dict[str, str] = field(default_factory=dict)  # the same, from NCCL's own files
    memory_total: int | None = None
    memory_available: int | None = None
    memory_limit: int | None = None  # bytes that the container or the Slurm job may use
    disk_free: int | None = None  # bytes where the runs are written
    disk_writable: bool = True
    temp_free: int | None = None  # bytes for temporary files
    open_files: int | None = None  # ulimit -n
    processes_limit: int | None = None  # processes and threads that this user, or this container, may have
    locked_memory: int | None = None  # bytes, ulimit -l; None: unlimited or unknown
    infiniband: bool = False
    shm_total: int | None = None
    shm_free: int | None = None
    hostname: str = ""
    address: str | None = None  # what the hostname resolves to
    address_here: bool = True  # is that an address of this machine?
    lookup_seconds: float | None = None  # how long that took
    localhost: bool = True  # does "localhost" lead to the loopback interface?
    interfaces: tuple[str, ...] = ()
    loopback: bool = True  # does a connection to a port of this machine arrive?
    free_port: bool = True  # could a free port be opened on the loopback interface?
    port_29500_free: bool = True
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    urls: tuple[str, ...] = ()  # for a recorded machine: where the public material is

    @property
    def cores(self) -> int:
        """Logical processors this process may use (what `os.sched_getaffinity` says)."""
        return max(1, len(self.cpus))

    @property
    def cores_of_time(self) -> int:
        """Cores that can be kept busy: those above, or fewer where the container's share of time ends."""
        return self.cores if self.cpu_limit is None else min(self.cores, max(1, int(self.cpu_limit)))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Machine:
        """The machine that `to_dict` described. Raises ValueError for a fact this version does not know."""
        facts = dict(facts)
        unknown = set(facts) - {known.name for known in fields(cls)}
        if unknown:
            raise ValueError(f"unknown facts about a machine: {', '.join(sorted(unknown))}")
        facts["cpus"] = tuple(Cpu(**cpu) for cpu in facts.get("cpus", ()))
        facts["links"] = tuple(Link(**link) for link in facts.get("links", ()))
        facts["gpus"] = tuple(_gpu(gpu) for gpu in facts.get("gpus", ()))
        for name in ("torch_archs", "gpu_errors", "interfaces", "urls"):
            facts[name] = tuple(facts.get(name, ()))
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
