"""What can be wrong with GPUs that are there, each both ways: the check speaks, and stays silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from doctor_machines import server

from ddp_helpers.doctor import (
    Machine,
    architecture,
    driver,
    examine,
    gpu_health,
    gpu_memory,
    gpu_mode,
    gpus,
    links,
    nvlink,
    recorded,
)
from ddp_helpers.doctor.machine import GIB, Gpu, GpuProcess, Link
from ddp_helpers.doctor.visible import mistake, visible_gpus
from ddp_helpers.doctor.world_size import advise

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


def with_gpu(index: int, **facts: Any) -> Machine:
    """A sound server of two GPUs, one of them with these facts."""
    machine = server(2)
    return replace(machine, gpus=tuple(replace(g, **facts) if g.index == index else g for g in machine.gpus))


def test_a_sound_servers_report_shows_none_of_the_minor_checks() -> None:
    report = examine(server(torch_archs=ARCHS))
    assert [line.name for line in report.shown] == [
        *("software", "GPUs", "driver", "NCCL", "links", "GPU memory", "cores", "threads", "memory"),
        *("shared memory", "hostname", "ports"),
    ]
    assert report.exit_code == 0


# -- no GPU within reach ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({}, "note", "no NVIDIA GPU"),
        ({"gpu_cards": 1}, "warning", "install NVIDIA's driver"),
        ({"gpu_cards": 8, "container": "Docker"}, "warning", "--gpus all"),
        ({"gpu_cards": 8, "container": "Kubernetes"}, "warning", "nvidia.com/gpu"),
        ({"gpu_cards": 8, "container": "Apptainer"}, "warning", "--nv"),
        ({"gpu_cards": 8, "slurm": "job"}, "warning", "--gres=gpu:2"),
        ({"slurm": "login"}, "note", "srun --gpus=2"),
        ({"slurm": "job"}, "note", "no NVIDIA GPU"),
        ({"nvml_package": False}, "warning", "pip install nvidia-ml-py"),
        ({"torch_hip": "6.4", "torch_cuda": None}, "note", "AMD"),
        ({"nvml_error": "GPU is lost"}, "note", "none that answers"),
    ],
)
def test_no_gpu_to_be_seen_is_told_from_no_gpu(facts: dict[str, Any], level: str, words: str) -> None:
    finding = gpus.check(server(gpus=(), links=(), **facts))
    assert finding.level == level
    assert words in f"{finding.found} {finding.matters} {finding.do}"
    assert advise(server(gpus=(), links=(), **facts)).backend == "gloo"


def test_inside_a_slurm_job_nobody_is_sent_to_slurm_for_a_gpu_the_machine_lacks() -> None:
    assert gpus.check(server(gpus=(), slurm="job")).do == ""


def test_a_card_without_a_driver_is_not_called_no_gpu_in_the_drivers_line() -> None:
    assert "within reach" in driver.check(server(gpus=(), gpu_cards=1)).matters
    assert "within reach" not in driver.check(server(gpus=())).matters


# -- CUDA_VISIBLE_DEVICES --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "left", "words"),
    [
        ("4,5", 0, "4 is none of them"),
        ("0,7", 1, "7 is none of them"),
        ("GPU-9", 0, "GPU-9 is none of them"),
        ("0,0", 0, "for the second time"),
        ("all", 0, "all is none of them"),
    ],
)
def test_a_wrong_cuda_visible_devices_is_explained(value: str, left: int, words: str) -> None:
    finding = gpus.check(server(2, cuda_visible_devices=value))
    assert finding.level == "warning"
    assert f"2 GPUs, {left} of them visible" in finding.found
    assert words in finding.found
    assert "0,1" in finding.do


@pytest.mark.parametrize("value", [None, "", "-1", "0", "1,0", "GPU-1", "0,-1"])
def test_a_right_cuda_visible_devices_is_no_mistake(value: str | None) -> None:
    assert mistake(server(2, cuda_visible_devices=value)) is None


def test_one_hidden_gpu_is_not_written_as_several() -> None:
    assert "1 GPU, all hidden" in gpus.check(server(1, cuda_visible_devices="")).found


def test_an_instance_of_a_split_gpu_is_found() -> None:
    machine = replace(with_gpu(1, mig=True), cuda_visible_devices="MIG-4e0f")
    assert [gpu.index for gpu in visible_gpus(machine)] == [1]
    assert mistake(replace(server(2), cuda_visible_devices="MIG-4e0f")) == "MIG-4e0f is none of them"


# -- driver and build ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"driver_cuda": "12.8"}, "580 or newer"),
        ({"driver_cuda": None}, "libcuda.so.1"),
        ({"driver_cuda": None, "container": "Docker"}, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        ({"cuda_error": "802: system not yet initialized"}, "nvidia-fabricmanager"),
        ({"cuda_error": "803: system has unsupported display driver / cuda driver combination"}, "reboot"),
        ({"cuda_error": "804: forward compatibility was attempted on non supported HW"}, "LD_LIBRARY_PATH"),
        ({"cuda_error": "34: CUDA driver is a stub library"}, "stubs"),
        ({"cuda_error": "999: unknown error"}, "nvidia_uvm"),
        ({"cuda_error": "no answer in 60 seconds"}, "Xid"),
        ({"torch_cuda": None}, "CUDA build"),
        ({"torch_cuda": None, "torch_hip": "6.4"}, "CUDA build"),
        ({"nvml_error": "Driver/library version mismatch"}, "reboot"),
        ({"nvml_error": "Driver/library version mismatch", "container": "Docker"}, "out of the image"),
        ({"nvml_error": "Insufficient Permissions"}, "/dev/nvidia"),
    ],
)
def test_a_driver_that_torch_cannot_use_is_a_problem_and_its_gpus_are_not_advised(
    facts: dict[str, Any], words: str
) -> None:
    machine = server(2, **facts)
    finding = driver.check(machine)
    assert finding.level == "problem"
    assert words in finding.do
    assert examine(machine).exit_code == 1
    assert advise(machine).device == "cpu"
    assert "see driver" in advise(machine).why


def test_a_sound_driver_is_ok_and_its_gpus_are_advised() -> None:
    assert driver.check(server(2)).level == "ok"
    assert advise(server(2)).device == "cuda"


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ("8.0", ARCHS, True),
        ("8.9", ARCHS, True),  # sm_86 and sm_80 run on later ones of the same major version
        ("12.1", ARCHS, True),
        ("7.0", ARCHS, False),
        ("6.1", ARCHS, False),
        ("12.0", ("sm_80", "sm_90"), False),
        ("12.0", ("sm_80", "compute_90"), True),  # PTX
        ("8.0", ("sm_86",), False),
        ("9.0", ("sm_90a",), True),
    ],
)
def test_a_gpu_without_code_for_it_is_found_out(capability: str, archs: tuple[str, ...], runs: bool) -> None:
    machine = replace(with_gpu(1, capability=capability), torch_archs=archs)
    finding = architecture.check(machine)
    assert finding.level == ("ok" if runs else "problem")
    assert finding.shown is not runs
    assert advise(machine).device == ("cuda" if runs else "cpu")


def test_an_unknown_capability_is_no_accusation() -> None:
    assert architecture.check(server(2, torch_archs=ARCHS)).level == "ok"
    assert architecture.check(with_gpu(0, capability="6.1")).level == "ok"  # the build's list is unknown


# -- mode, health, links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({}, "ok", ""),
        ({"compute_mode": "exclusive"}, "note", "one process at a time"),
        ({"compute_mode": "prohibited"}, "problem", "prohibited"),
        ({"mig": True}, "warning", "MIG"),
    ],
)
def test_the_mode_of_a_gpu(facts: dict[str, Any], level: str, words: str) -> None:
    finding = gpu_mode.check(with_gpu(1, **facts))
    assert finding.level == level
    assert words in finding.found
    assert finding.shown is (level != "ok")
    assert advise(with_gpu(1, **facts)).device == ("cpu" if level in ("warning", "problem") else "cuda")


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({}, "ok", ""),
        ({"ecc_errors": 3}, "warning", "GPU 1: 3 memory errors"),
        ({"remap": "pending"}, "warning", "waits for a reset"),
        ({"remap": "failed"}, "problem", "spare rows"),
        ({"recovery": "reset"}, "problem", "asks for a reset"),
        ({"recovery": "reboot"}, "problem", "asks for a reboot"),
        ({"slowdown": "heat"}, "warning", "too hot"),
        ({"slowdown": "power"}, "warning", "power supply"),
    ],
)
def test_the_health_of_a_gpu(facts: dict[str, Any], level: str, words: str) -> None:
    finding = gpu_health.check(with_gpu(1, **facts))
    assert finding.level == level
    assert words in finding.found


def test_the_health_of_a_hidden_gpu_is_nobodys_concern_but_a_lost_one_is() -> None:
    assert gpu_health.check(replace(with_gpu(1, recovery="reset"), cuda_visible_devices="0")).level == "ok"
    lost = gpu_health.check(server(2, gpu_errors=("GPU 2: GPU is lost",)))
    assert (lost.level, lost.found) == ("problem", "GPU 2: GPU is lost")


def test_a_gpu_with_fewer_nvlinks_than_its_twins_is_named() -> None:
    machine = server(2)
    up = replace(machine, gpus=tuple(replace(gpu, nvlinks=12) for gpu in machine.gpus))
    assert nvlink.check(up).level == "ok"
    partly = replace(up, gpus=(up.gpus[0], replace(up.gpus[1], nvlinks=11)))
    assert nvlink.check(partly).found == "GPU 1 has 11 links up, others of its model 12"
    bridgeless = replace(up, gpus=(up.gpus[0], replace(up.gpus[1], nvlinks=0)))
    assert nvlink.check(bridgeless).level == "ok"
    unlike = replace(up, gpus=(up.gpus[0], replace(up.gpus[1], nvlinks=4, model="NVIDIA A30")))
    assert nvlink.check(unlike).level == "ok"


@pytest.mark.parametrize(
    ("fabric", "error", "level"),
    [
        (None, None, "ok"),
        ("ready", None, "ok"),
        ("not ready", None, "warning"),
        ("not ready", "802: system not yet initialized", "problem"),
        ("error 3", None, "warning"),
    ],
)
def test_a_gpu_that_is_not_registered_with_the_switches(fabric: str | None, error: str | None, level: str) -> None:
    finding = nvlink.check(replace(with_gpu(1, fabric=fabric), cuda_error=error))
    assert finding.level == level
    assert ("nvidia-fabricmanager" in finding.do) is (level != "ok")


def test_gpus_in_one_state_are_named_together() -> None:
    assert "(GPU 0,1,2,3: not ready)" in examine(recorded("no-fabric-manager"))["NVLink"].found


@pytest.mark.parametrize(
    ("iommu", "kind", "peer", "level"),
    [
        ("DMA-FQ", "PHB", True, "warning"),
        ("DMA", "SYS", True, "warning"),
        ("identity", "PHB", True, "note"),
        (None, "PHB", True, "note"),
        ("DMA-FQ", "PHB", False, "note"),  # no direct access, so nothing to translate
        ("DMA-FQ", "NV4", True, "ok"),  # NVLink does not pass it
    ],
)
def test_an_iommu_between_gpus_is_a_warning_only_where_they_read_each_other_through_it(
    iommu: str | None, kind: str, peer: bool, level: str
) -> None:
    machine = replace(with_gpu(1, iommu=iommu), links=(Link(0, 1, kind, peer),))
    finding = links.check(machine)
    assert finding.level == level
    assert ("iommu=pt" in finding.do) is (level == "warning")


def test_under_wsl_unknown_links_are_explained() -> None:
    assert "WSL" in links.check(server(2, links=(), wsl=True)).matters
    assert "WSL" not in links.check(server(2, links=())).matters


# -- who is there ----------------------------------------------------------------------------------------------------


def test_ones_own_orphan_may_be_ended_and_somebody_elses_process_only_asked_about() -> None:
    orphan = GpuProcess(4711, "python", None, "anna", mine=True, orphan=True)
    finding = gpu_memory.check(with_gpu(1, memory_used=30 * GIB, processes=(orphan,)))
    assert "process 4711 (python, yours, whoever started it is gone)" in finding.found
    assert "kill 4711" in finding.do
    for other in (replace(orphan, mine=False), replace(orphan, orphan=False)):
        assert "kill" not in gpu_memory.check(with_gpu(1, memory_used=30 * GIB, processes=(other,))).do
    assert (
        "of anna" in gpu_memory.check(with_gpu(1, memory_used=30 * GIB, processes=(replace(orphan, mine=False),))).found
    )


@pytest.mark.parametrize(
    ("facts", "words"),
    [({}, "fuser -v"), ({"container": "Docker"}, "on the host"), ({"wsl": True}, "on the host")],
)
def test_an_unseen_holder_is_looked_for_where_it_can_be_seen(facts: dict[str, Any], words: str) -> None:
    assert words in gpu_memory.check(replace(with_gpu(1, memory_used=30 * GIB), **facts)).do


def test_a_gpu_on_which_somebody_computes_is_not_free_even_with_little_memory_held() -> None:
    machine = with_gpu(1, memory_used=GIB, busy=97)
    assert "97% busy" in gpu_memory.check(machine).found
    assert "CUDA_VISIBLE_DEVICES=0." in gpu_memory.check(machine).do
    assert advise(machine).device == "cpu"
    assert gpu_memory.check(with_gpu(1, memory_used=GIB, busy=3)).level == "ok"


def test_gpus_without_memory_of_their_own_are_neither_full_nor_said_to_have_none() -> None:
    shared = (Gpu(0, "NVIDIA GB10", 0, 0), Gpu(1, "NVIDIA GB10", 0, 0))
    assert gpus.check(server(gpus=shared)).found == "2 × NVIDIA GB10"
    assert gpu_memory.check(server(gpus=shared)).level == "ok"
    assert advise(server(gpus=shared)).ranks == 2


# -- recorded machines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line", "level", "exit_code"),
    [
        ("8-gpu-server", None, None, 0),
        ("container-64mb-shm", "shared memory", "problem", 1),
        ("mixed-gpus", "GPUs", "warning", 0),
        ("no-gpu-laptop", None, None, 0),
        ("unresolved-hostname", "hostname", "warning", 0),
        ("old-driver", "driver", "problem", 1),
        ("stale-process", "GPU memory", "warning", 0),
        ("iommu-workstation", "links", "warning", 0),
        ("no-fabric-manager", "driver", "problem", 1),
        ("container-without-gpus", "GPUs", "warning", 0),
    ],
)
def test_a_recorded_machine_has_its_illness_and_no_other(
    name: str, line: str | None, level: str | None, exit_code: int
) -> None:
    report = examine(recorded(name))
    ill = {finding.name: finding.level for finding in report.findings if finding.level in ("warning", "problem")}
    allowed = {"NVLink"} if name == "no-fabric-manager" else set()  # CUDA's error and its cause
    assert {key: value for key, value in ill.items() if key not in allowed} == ({line: level} if line else {})
    assert report.exit_code == exit_code
