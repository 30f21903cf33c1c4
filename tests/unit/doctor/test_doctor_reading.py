"""The doctor looks at this machine, and at GPUs played by a stand-in for NVML."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from doctor_machines import laptop

from ddp_helpers.doctor import (
    gather,
    nvml,
    nvml_processes,
    pci,
    read_environment,
    read_limits,
    read_network,
    read_software,
    settings,
    software,
)
from ddp_helpers.doctor.cuda_start import cuda_error
from ddp_helpers.doctor.machine import GIB, Link


def test_this_machine_is_looked_at_without_starting_cuda() -> None:
    script = (
        "from ddp_helpers.doctor import doctor; report = doctor(); import torch; "
        "assert not torch.cuda.is_initialized(); print(report.machine.cores, report.machine.torch)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    counted, version = run.stdout.split()
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert int(counted) == available
    import torch

    assert version == torch.__version__


def test_importing_the_doctor_imports_nothing_heavy() -> None:
    script = (
        "import sys; import ddp_helpers.doctor; "
        "print([name for name in ('torch', 'matplotlib', 'pynvml', 'numpy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "[]", run.stderr


def test_an_unresolvable_name_is_no_address() -> None:
    assert read_network.resolve("no-such-host.invalid") is None
    assert read_network.resolve("a" * 70) is None  # too long for a name: a UnicodeError


def test_a_held_port_cannot_be_opened() -> None:

    with socket.create_server(("127.0.0.1", 0)) as holder:
        assert not read_network.can_listen(holder.getsockname()[1])
    assert read_network.can_listen(0)


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-2,8", [0, 1, 2, 8]), ("5", [5]), ("", []), ("0-1,4-5\n", [0, 1, 4, 5])]
)
def test_the_kernels_lists_of_processors_are_read(text: str, numbers: list[int]) -> None:
    assert gather.parse_cpu_list(text) == numbers


class FakeNVML:
    """Three GPUs: 0 and 1 joined by two NVLinks, 2 elsewhere; GPU 0 is held by this very process."""

    class NVMLError(Exception):
        pass

    NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE = 0, 10, 20
    NVML_TOPOLOGY_HOSTBRIDGE, NVML_TOPOLOGY_NODE = 30, 40
    NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 0, 2
    NVML_NVLINK_MAX_LINKS, NVML_P2P_STATUS_OK = 4, 0

    def __init__(self, switched: bool = False) -> None:
        self.switched = switched

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:0{handle}:00.0".encode())

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=16 * GIB, used=GIB * handle)

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA Test"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        if handle == 1:
            raise self.NVMLError("not supported")
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)] if handle == 0 else []

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        return 30 if {a, b} == {0, 1} else 50

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 2 or (handle == 2 and not self.switched):
            raise self.NVMLError("no such link")
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return self.NVML_NVLINK_DEVICE_TYPE_SWITCH if self.switched else self.NVML_NVLINK_DEVICE_TYPE_GPU

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=b"0000:ff:00.0" if self.switched else f"00000000:0{1 - handle}:00.0".encode())

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, index: int) -> int:
        assert index == 0
        return 0 if {a, b} == {0, 1} else 5

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13010


def test_nvml_tells_models_holders_links_and_peers() -> None:
    facts = nvml._ask(FakeNVML())
    assert [gpu.model for gpu in facts.gpus] == ["NVIDIA Test"] * 3
    assert facts.gpus[0].processes[0].pid == os.getpid()
    assert facts.gpus[1].processes == ()
    assert facts.links == (Link(0, 1, "NV2", True), Link(0, 2, "SYS", False), Link(1, 2, "SYS", False))
    assert (facts.driver, facts.driver_cuda) == ("580.95.05", "13.1")


def test_gpus_on_nvlink_switches_are_joined_by_all_their_links() -> None:
    assert {link.kind for link in nvml._ask(FakeNVML(switched=True)).links} == {"NV2"}


def test_no_driver_means_no_gpus_and_a_broken_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")

    def fail(code: int) -> Any:
        def init() -> None:
            raise pynvml.NVMLError(code)

        return init

    monkeypatch.setattr(pynvml, "nvmlInit", fail(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert nvml.read_gpus() == nvml.GpuFacts()
    monkeypatch.setattr(pynvml, "nvmlInit", fail(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    broken = nvml.read_gpus()
    assert broken.gpus == ()
    assert "ismatch" in (broken.error or "")


class TellingNVML(FakeNVML):
    """Three GPUs of which the driver tells all it can; the last one has fallen off the bus."""

    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, NVML_COMPUTEMODE_PROHIBITED = 3, 2
    NVML_DEVICE_MIG_ENABLE, NVML_SUCCESS = 1, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_GPU_FABRIC_STATE_NOT_SUPPORTED, NVML_GPU_FABRIC_STATE_COMPLETED = 0, 3
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    NVML_GPU_RECOVERY_ACTION_GPU_RESET, NVML_GPU_RECOVERY_ACTION_NODE_REBOOT = 1, 2
    NVML_GPU_RECOVERY_ACTION_DRAIN_P2P, NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET = 3, 4

    class c_nvmlGpuFabricInfo_v2_t(ctypes.Structure):
        _fields_ = (("state", ctypes.c_uint), ("status", ctypes.c_uint))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 2:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if handle == 1:
            raise self.NVMLError("Not Supported")
        return super().nvmlDeviceGetMemoryInfo(handle)

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        raise self.NVMLError("Shared Library Not Found")

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetComputeMode(self, handle: int) -> int:
        return 3

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [handle, 0]

    def nvmlDeviceGetGpuFabricInfoV(self, handle: int, info: Any) -> None:
        info._obj.state = (3, 2)[handle]

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, since: int) -> int:
        return 2

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return ((0, 1, 1, 0), (0, 1, 0, 1))[handle]

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> list[SimpleNamespace]:
        assert fields == [230]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=handle))]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return (0x40 | 0x80, 0x4)[handle]  # 0x4: the power limit that was set, which is no trouble


def test_nvml_tells_the_health_of_each_gpu_and_one_lost_gpu_hides_no_other() -> None:
    facts = nvml._ask(TellingNVML())
    assert facts.gpu_errors == ("GPU 2: GPU is lost",)
    assert facts.driver_cuda is None
    assert facts.links == ()  # nobody knows; not "SYS"
    first, second = facts.gpus
    assert (first.capability, first.busy, first.compute_mode, first.mig) == ("9.0", 97, "exclusive", False)
    assert (first.fabric, first.ecc_errors, first.remap, first.recovery) == ("ready", 2, "pending", None)
    assert (first.slowdown, first.nvlinks) == ("heat", 2)
    assert (second.mig, second.fabric, second.remap, second.recovery) == (True, "not ready", "failed", "reset")
    assert (second.slowdown, second.memory_total) == (None, 0)


def test_what_nvml_does_not_know_is_left_open() -> None:
    gpu = nvml._ask(FakeNVML()).gpus[0]
    assert (gpu.capability, gpu.busy, gpu.compute_mode, gpu.mig) == (None, None, "default", False)
    assert (gpu.fabric, gpu.ecc_errors, gpu.remap, gpu.recovery, gpu.slowdown) == (None, 0, None, None, None)


def test_every_name_of_nvml_that_is_used_exists() -> None:
    pynvml = pytest.importorskip("pynvml")
    sources = Path(nvml.__file__).parent.glob("nvml*.py")
    used = {
        name for file in sources for name in re.findall(r"nvml\.((?:c_)?(?:nvml|NVML)\w+)", file.read_text("utf-8"))
    }
    assert len(used) > 30
    assert [name for name in sorted(used) if not hasattr(pynvml, name)] == []


def test_a_process_of_ours_without_cuda_is_not_named_as_a_holder_and_one_with_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In a container the driver's number may belong to somebody else there.
    assert nvml_processes.describe(os.getpid(), None).name == "unknown"
    monkeypatch.setattr(nvml_processes, "_uses_cuda", lambda pid: True)
    holder = nvml_processes.describe(os.getpid(), 7)
    assert holder.name != "unknown"
    assert (holder.mine, holder.orphan, holder.memory) == (True, False, 7)
    monkeypatch.setattr(nvml_processes, "INITS", (psutil.Process().parent().name(),))
    assert nvml_processes.describe(os.getpid(), 7).orphan
    assert nvml_processes.describe(2**22 + 1, 7).name == "unknown"  # beyond Linux's largest pid


# -- CUDA's start, played by a library of our own --------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("cc") is None or sys.platform != "linux", reason="needs a C compiler")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 0;", None),
        ("return 802;", "802: system not yet initialized"),
        ("return 100;", None),  # CUDA_VISIBLE_DEVICES hides all
        ("for (;;) pause();", "no answer in 2 seconds"),
        ("raise(SIGSEGV); return 0;", "the process was ended by signal 11"),
    ],
)
def test_what_cuda_says_at_its_start_is_told(tmp_path: Path, body: str, expected: str | None) -> None:
    source = tmp_path / "cuda.c"
    source.write_text(
        f"#include <signal.h>\n#include <unistd.h>\nint cuInit(unsigned flags) {{ {body} }}\n"
        'int cuGetErrorString(int code, const char **text) { *text = "system not yet initialized"; return 0; }\n',
        encoding="utf-8",
    )
    library = tmp_path / "libcuda.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    assert cuda_error(str(library), patience=2 if "no answer" in str(expected) else 60) == expected


def test_a_missing_libcuda_is_told() -> None:
    assert "no libcuda: " in (cuda_error("libno-such-cuda.so.1") or "")


# -- the bus, control groups, files ----------------------------------------------------------------------------------


def test_nvidias_gpus_are_counted_on_the_bus_with_or_without_a_driver(tmp_path: Path) -> None:
    cards = {
        "0000:01:00.0": ("0x10de", "0x030000"),  # a graphics card
        "0000:02:00.0": ("0x10de", "0x030200"),  # one without a screen
        "0000:01:00.1": ("0x10de", "0x040300"),  # its sound
        "0000:00:02.0": ("0x8086", "0x030000"),  # Intel's
    }
    for bus, (vendor, kind) in cards.items():
        (tmp_path / bus / "iommu_group").mkdir(parents=True)
        (tmp_path / bus / "vendor").write_text(vendor + "\n", encoding="utf-8")
        (tmp_path / bus / "class").write_text(kind + "\n", encoding="utf-8")
        (tmp_path / bus / "numa_node").write_text("-1\n" if bus.endswith("1") else "3\n", encoding="utf-8")
        (tmp_path / bus / "iommu_group" / "type").write_text("DMA-FQ\n", encoding="utf-8")
    assert pci.count_cards(tmp_path) == 2
    assert pci.count_cards(tmp_path / "none") == 0
    assert pci.iommu("00000000:01:00.0", tmp_path) == "DMA-FQ"
    assert pci.iommu("00000000:09:00.0", tmp_path) is None
    assert (pci.numa("00000000:02:00.0", tmp_path), pci.numa("00000000:01:00.1", tmp_path)) == (3, None)


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n", encoding="utf-8")


def test_the_tightest_limit_above_this_process_counts(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/slurm/job_7\n", encoding="utf-8")
    root = tmp_path / "fs"
    write(root / "slurm" / "job_7", memory__max="max", memory__current=5 * GIB)
    write(root / "slurm", memory__max=8 * GIB, memory__current=6 * GIB, memory__stat=f"file 9\ninactive_file {GIB}")
    groups = list(read_limits.own_groups(root, membership))
    assert groups == [root / "slurm" / "job_7", root / "slurm", root]
    assert read_limits.memory_limit(groups) == (8 * GIB, 5 * GIB)  # what the system can drop counts as free


def test_the_older_control_groups_are_read_and_their_no_limit_is_none(tmp_path: Path) -> None:
    names = {"memory__limit_in_bytes": 2 * GIB, "memory__usage_in_bytes": GIB}
    write(tmp_path / "memory", **names, memory__stat=f"total_inactive_file {GIB // 2}")
    assert read_limits.memory_limit([tmp_path]) == (2 * GIB, GIB // 2)
    write(tmp_path / "memory", memory__limit_in_bytes=9223372036854771712)
    assert read_limits.memory_limit([tmp_path]) == (None, 0)
    assert read_limits.memory_limit([tmp_path / "none"]) == (None, 0)


def test_only_variables_that_change_a_job_are_kept_and_no_secrets() -> None:
    environment = {"NCCL_P2P_DISABLE": "1", "RANK": "0", "HF_TOKEN": "secret", "HOME": "/h", "NCCL_ALGO": ""}
    assert read_environment.kept(environment) == {"NCCL_P2P_DISABLE": "1", "RANK": "0"}


def test_nccls_files_are_read_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\n", encoding="utf-8")
    (tmp_path / ".nccl.conf").write_text("# mine\nNCCL_ALGO=Tree\nother=1\nNCCL_PROTO = LL\n", encoding="utf-8")
    found = read_environment.nccl_file({"NCCL_PROTO": "Simple"}, tmp_path, tmp_path)
    assert found == {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO"}


def test_a_slurm_job_is_told_from_a_login_node_and_from_an_image_with_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(read_environment, "SLURM_FILES", (str(tmp_path / "slurm.conf"),))
    assert read_environment.slurm({"SLURM_JOB_ID": "7"}) == "job"
    assert read_environment.slurm({}) is None
    (tmp_path / "slurm.conf").touch()
    assert read_environment.slurm({}) == "login"


def test_the_torch_and_torchvision_of_this_environment_fit_together() -> None:
    import torch

    facts = read_software.software()
    assert facts["torch"] == torch.__version__
    assert facts["torchvision"]
    assert facts["torchvision_needs"]
    assert software.check(replace(laptop(), **facts)).level == "ok"


def test_a_file_named_torch_is_reported_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('mine')\n", encoding="utf-8")
    script = "from ddp_helpers.doctor import main; main(['--json'])"
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "torch.py" in run.stdout, run.stderr
    assert "cannot be imported" in run.stdout


def test_a_torch_whose_libraries_are_missing_is_reported_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudnn.so.9: cannot open')\n", encoding="utf-8")
    script = "from ddp_helpers.doctor import main; main(['--json'])"
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "cannot be imported: libcudnn.so.9" in run.stdout, run.stderr


def test_this_machine_reaches_itself_and_an_address_of_nobody_is_not_here() -> None:
    assert read_network.connects()
    assert not read_network.can_listen(0, "192.0.2.1")  # kept free for documentation (RFC 5737)
    assert read_network.is_loopback(read_network.resolve("localhost"))


def test_a_left_over_interface_name_breaks_gloo_as_the_doctor_says(tmp_path: Path) -> None:
    script = (
        "import torch.distributed as dist\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "no-such-if"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode != 0
    assert "no-such-if" in run.stderr
    here = read_network.network()["interfaces"]
    assert settings.check(laptop(environment={"GLOO_SOCKET_IFNAME": "no-such-if"}, interfaces=here)).level == "problem"
