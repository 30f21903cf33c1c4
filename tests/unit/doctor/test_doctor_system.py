"""What can be wrong around the GPUs: software, limits, disk, names, the environment; each check both ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from doctor_machines import laptop, server

from ddp_helpers.doctor import (
    cores,
    disk,
    examine,
    hostname,
    limits,
    memory,
    ports,
    settings,
    software,
    threads,
)
from ddp_helpers.doctor.machine import GIB, MIB, Cpu

HERE = ("lo", "enp3s0")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"torch_error": "libcudnn.so.9: cannot open shared object file"}, "cannot be imported: libcudnn"),
        ({"torchvision": "0.24.0", "torchvision_needs": "==2.9.0"}, "needs torch ==2.9.0"),
        ({"torchvision": "0.30.0", "torchvision_needs": ">=2.15.0"}, "needs torch >=2.15.0"),
        ({"torchvision": "0.29.1", "torchvision_cuda": "cu126"}, "built for CUDA 12 (torch for CUDA 13.0)"),
    ],
)
def test_software_that_does_not_fit_together_is_a_problem(facts: dict[str, Any], words: str) -> None:
    finding = software.check(laptop(**facts))
    assert finding.level == "problem"
    assert words in finding.found


@pytest.mark.parametrize(
    "facts",
    [
        {"torchvision": "0.29.1", "torchvision_needs": ">=2.14.0", "torchvision_cuda": "cu130"},
        {"torchvision": "0.29.1", "torchvision_needs": "==2.14.1"},
        {"torchvision": "0.29.1", "torchvision_needs": None, "torchvision_cuda": None},
        {"torchvision": "0.29.1", "torchvision_cuda": "cpu"},  # runs, but for operators on the GPU
        {"torch": "2.15.0a0+git12", "torchvision": "0.29.1", "torchvision_needs": ">=2.14.0"},
        {"torch": "2.14.1+cpu", "torch_cuda": None, "torchvision": "0.29.1", "torchvision_cuda": "cpu"},
    ],
)
def test_software_that_fits_is_ok(facts: dict[str, Any]) -> None:
    assert software.check(laptop(**facts)).level == "ok"


def test_threads_are_compared_with_the_share_of_time_and_not_with_the_cores_in_sight() -> None:
    many = tuple(Cpu(number, number) for number in range(64))
    assert threads.check(laptop(cpus=many, omp_num_threads="16")).level == "ok"
    assert threads.check(laptop(cpus=many, cpu_limit=2.0, omp_num_threads="16")).level == "warning"


def test_a_slurm_job_of_one_core_is_told_how_to_ask_for_more() -> None:
    one = (Cpu(0, 0),)
    assert "--cpus-per-task" in cores.check(laptop(cpus=one, slurm="job")).do
    assert cores.check(laptop(cpus=one)).do == ""


def test_memory_that_a_container_may_use_is_told_from_the_machines() -> None:
    small = laptop(container="Docker", memory_total=256 * GIB, memory_limit=2 * GIB, memory_available=GIB)
    finding = memory.check(small)
    assert finding.level == "warning"
    assert finding.found == "1 GiB free of 2 GiB that this container may use (the machine has 256 GiB)"
    assert "--memory" in finding.do
    assert "this job" in memory.check(replace(small, container=None, slurm="job")).found
    assert memory.check(replace(small, memory_limit=64 * GIB, memory_available=60 * GIB)).level == "ok"
    assert "may use" not in memory.check(laptop()).found


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({}, "ok", ""),
        ({"open_files": 1024}, "ok", ""),
        ({"open_files": 256}, "warning", "256 open files"),
        ({"open_files": 256, "system": "Darwin"}, "ok", ""),
        ({"processes_limit": 100}, "warning", "100 processes"),
        ({"processes_limit": 4096}, "ok", ""),
        ({"locked_memory": 64 * 1024}, "ok", ""),  # without InfiniBand nobody needs it
        ({"locked_memory": 64 * 1024, "infiniband": True}, "note", "64 KiB of locked memory"),
        ({"locked_memory": None, "infiniband": True}, "ok", ""),
    ],
)
def test_limits(facts: dict[str, Any], level: str, words: str) -> None:
    finding = limits.check(laptop(**facts))
    assert finding.level == level
    assert words in finding.found
    assert finding.shown is (level != "ok")


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({}, "ok", ""),
        ({"disk_free": 50 * GIB, "temp_free": 50 * GIB}, "ok", ""),
        ({"disk_free": 500 * MIB}, "warning", "500 MiB free in this folder"),
        ({"disk_free": 10 * MIB}, "problem", "10 MiB free in this folder"),
        ({"disk_free": 50 * GIB, "temp_free": MIB}, "problem", "for temporary files"),
        ({"disk_writable": False}, "warning", "cannot be written"),
    ],
)
def test_disk(facts: dict[str, Any], level: str, words: str) -> None:
    finding = disk.check(laptop(**facts))
    assert finding.level == level
    assert words in finding.found


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({}, "ok", "loopback"),
        ({"address": "::1"}, "ok", "loopback"),
        ({"address": "10.0.0.5"}, "ok", "network address"),
        ({"address": "192.168.7.9", "address_here": False}, "warning", "which is not this machine"),
        ({"lookup_seconds": 10.0}, "warning", "took 10 seconds"),
        ({"lookup_seconds": 0.1}, "ok", "loopback"),
        ({"localhost": False}, "problem", "localhost"),
    ],
)
def test_names(facts: dict[str, Any], level: str, words: str) -> None:
    finding = hostname.check(laptop(**facts))
    assert finding.level == level
    assert words in finding.found


def test_a_port_that_opens_and_cannot_be_reached_is_a_problem() -> None:
    finding = ports.check(laptop(loopback=False))
    assert finding.level == "problem"
    assert "firewall" in finding.do.lower()


# -- variables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "level", "words"),
    [
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, "warning", "-11"),
        ({"TORCH_DISTRIBUTED_DEBUG": "INFO"}, "ok", ""),
        ({"GLOO_SOCKET_IFNAME": "eth9"}, "problem", "lo, enp3s0"),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "ok", ""),
        ({"GLOO_SOCKET_IFNAME": "lo,eth9"}, "problem", "gives up"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "warning", "waits for the others"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "ok", ""),
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}, "ok", ""),
        ({"PET_NPROC_PER_NODE": "4"}, "note", "torchrun"),
        ({"NCCL_P2P_DISABLE": "1"}, "ok", ""),  # without GPUs it does nothing
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "ok", ""),
    ],
)
def test_what_is_left_in_a_laptops_environment(left: dict[str, str], level: str, words: str) -> None:
    finding = settings.check(laptop(environment=left, interfaces=HERE))
    assert finding.level == level
    assert words in finding.matters
    if level != "ok":
        assert all(f"{name}={value}" in finding.found for name, value in left.items())
        assert f"unset {' '.join(left)}" in finding.do


@pytest.mark.parametrize(
    ("left", "level"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, "warning"),
        ({"NCCL_P2P_DISABLE": "0"}, "ok"),
        ({"NCCL_P2P_LEVEL": "loc"}, "warning"),
        ({"NCCL_P2P_LEVEL": "NVL"}, "ok"),
        ({"NCCL_SHM_DISABLE": "1"}, "warning"),
        ({"NCCL_IB_DISABLE": "1"}, "note"),
        ({"NCCL_ALGO": "Ring"}, "warning"),
        ({"NCCL_DEBUG": "WARN"}, "ok"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "warning"),
        ({"NCCL_SOCKET_IFNAME": "eth"}, "problem"),
        ({"NCCL_SOCKET_IFNAME": "enp"}, "ok"),  # the beginning of a name is enough
        ({"NCCL_SOCKET_IFNAME": "=enp"}, "problem"),
        ({"NCCL_SOCKET_IFNAME": "=enp3s0"}, "ok"),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, "ok"),
        ({"NCCL_SOCKET_IFNAME": "ib0,enp3s0"}, "ok"),
    ],
)
def test_what_is_left_in_a_servers_environment(left: dict[str, str], level: str) -> None:
    assert settings.check(server(2, environment=left, interfaces=HERE)).level == level


def test_a_setting_in_nccls_own_file_is_found_and_looked_for_there() -> None:
    finding = settings.check(server(2, nccl_file={"NCCL_P2P_DISABLE": "1"}))
    assert finding.level == "warning"
    assert "~/.nccl.conf" in finding.do
    assert "unset" not in finding.do


@pytest.mark.parametrize("facts", [{"slurm": "job"}, {"container": "Kubernetes"}])
def test_where_a_launcher_sets_ranks_they_are_no_leftovers(facts: dict[str, Any]) -> None:
    left = {"RANK": "0", "WORLD_SIZE": "2", "PET_NNODES": "2"}
    assert settings.check(laptop(environment=left, **facts)).level == "ok"


def test_the_worst_of_several_variables_decides() -> None:
    left = {"NCCL_IB_DISABLE": "1", "NCCL_ALGO": "Ring", "NCCL_SOCKET_IFNAME": "eth9"}
    report = examine(server(2, environment=left, interfaces=HERE))
    assert report["environment"].level == "problem"
    assert report.exit_code == 1
