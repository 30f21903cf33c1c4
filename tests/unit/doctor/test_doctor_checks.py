"""The doctor's checks: each finds what is there, says whether it matters, and asks for nothing it cannot justify."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doctor_machines import laptop, level, server

from ddp_helpers.doctor import (
    Machine,
    cores,
    driver,
    examine,
    gpu_memory,
    gpus,
    hostname,
    links,
    memory,
    nccl,
    ports,
    recorded,
    shared_memory,
    software,
    threads,
)
from ddp_helpers.doctor.machine import GIB, MIB, Cpu, Gpu, GpuProcess, Link
from ddp_helpers.doctor.visible import visible_gpus
from ddp_helpers.doctor.world_size import advise


def test_a_healthy_laptop_has_nothing_to_mend() -> None:
    report = examine(laptop())
    assert {finding.level for finding in report.findings} <= {"ok", "note"}
    assert report.exit_code == 0
    assert report.summary() == "Ready: nothing here must be mended."


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"python": "3.9.18"}, "problem"),
        ({"python": "3.10.0"}, "ok"),
        ({"torch": "2.8.0"}, "problem"),
        ({"torch": "2.9.0a0+git1234"}, "ok"),
        ({"torch": "2.10.0"}, "ok"),
        ({"torch": None}, "problem"),
    ],
)
def test_old_software_is_a_problem(facts: dict[str, Any], expected: str) -> None:
    assert level(software.check(laptop(**facts))) == expected


def test_no_gpu_is_worth_a_note_and_no_more() -> None:
    finding = gpus.check(laptop())
    assert (finding.level, finding.do) == ("note", "")
    assert "gloo" in finding.matters


def test_mixed_models_are_named_and_the_larger_group_is_advised() -> None:
    finding = gpus.check(recorded("mixed-gpus"))
    assert finding.level == "warning"
    assert finding.found == "2 × NVIDIA GeForce RTX 5090, 1 × NVIDIA GeForce RTX 3090 Ti"
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,2" in finding.do


def test_hidden_gpus_are_said_to_be_hidden() -> None:
    assert level(gpus.check(server(cuda_visible_devices=""))) == "warning"
    assert "hides 1 more" in gpus.check(server(cuda_visible_devices="1")).found


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("GPU-3", [3]),
        ("1,1,2", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str | None, seen: list[int]) -> None:
    assert [gpu.index for gpu in visible_gpus(server(4, cuda_visible_devices=value))] == seen


@pytest.mark.parametrize(
    ("build", "driver_cuda", "expected"),
    [("13.0", "13.0", "ok"), ("13.2", "13.0", "ok"), ("13.0", "12.8", "problem"), ("12.6", "13.0", "ok")],
)
def test_a_driver_of_an_older_cuda_major_is_a_problem(build: str, driver_cuda: str, expected: str) -> None:
    assert level(driver.check(server(torch_cuda=build, driver_cuda=driver_cuda))) == expected


def test_a_cpu_build_beside_gpus_is_a_problem_but_not_on_a_laptop() -> None:
    assert level(driver.check(server(torch_cuda=None))) == "problem"
    assert level(driver.check(laptop(torch_cuda=None))) == "ok"


def test_a_driver_that_does_not_answer_is_a_problem() -> None:
    finding = driver.check(laptop(nvml_error="Driver/library version mismatch"))
    assert finding.level == "problem"
    assert "Driver/library version mismatch" in finding.found


@pytest.mark.parametrize("machine", [laptop(), server(), recorded("8-gpu-server")])
def test_an_nccl_version_is_never_called_proof(machine: Machine) -> None:
    finding = nccl.check(machine)
    assert finding.level == "note"
    assert "2.30.7" in finding.found
    assert "prove" in finding.matters


def test_gpus_without_nccl_are_a_problem_and_a_laptop_without_it_is_not() -> None:
    assert level(nccl.check(server(nccl=None))) == "problem"
    assert level(nccl.check(laptop(nccl=None))) == "note"


def test_links_are_counted_by_kind_and_blocked_peers_are_named() -> None:
    assert links.check(server(3)).found == "3 pairs: NV12"
    joined = (Link(0, 1, "PHB", False),)
    finding = links.check(server(links=joined))
    assert finding.level == "note"
    assert "1 of 1 pairs cannot read each other's memory" in finding.found
    mixed = (Link(0, 1, "NV4", True), Link(0, 2, "SYS", True), Link(1, 2, "SYS", True))
    assert links.check(server(3, links=mixed)).found == "3 pairs: 2 SYS, 1 NV4"


def test_links_of_hidden_gpus_do_not_count() -> None:
    joined = (Link(0, 1, "NV4", True), Link(0, 2, "SYS", True), Link(1, 2, "SYS", True))
    assert links.check(server(3, links=joined, cuda_visible_devices="0,1")).found == "1 pair: NV4"


def test_who_holds_gpu_memory_is_named() -> None:
    held = Gpu(0, "NVIDIA A100", 40 * GIB, 30 * GIB, processes=(GpuProcess(4711, "python", 30 * GIB),))
    finding = gpu_memory.check(server(gpus=(held, Gpu(1, "NVIDIA A100", 40 * GIB, 0))))
    assert finding.level == "warning"
    assert finding.found == "GPU 0: 30 GiB of 40 GiB held by process 4711 (python)"
    assert finding.do.endswith("CUDA_VISIBLE_DEVICES=1.")


def test_a_container_that_may_use_less_than_it_sees_is_warned() -> None:
    finding = cores.check(laptop(cpu_limit=1.5))
    assert finding.level == "warning"
    assert "4 cores" in finding.found
    assert "the time of 1.5" in finding.found
    assert level(cores.check(laptop(cpu_limit=4.0))) == "ok"


def test_hardware_threads_are_told_from_physical_cores() -> None:
    assert "224 cores" in cores.check(recorded("8-gpu-server")).found
    assert "112 physical cores" in cores.check(recorded("8-gpu-server")).found


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "ok"), ("1", "ok"), ("2", "ok"), ("4", "warning"), ("many", "warning"), ("0", "warning")],
)
def test_threads_that_do_not_fit_two_ranks_are_warned(value: str | None, expected: str) -> None:
    assert level(threads.check(laptop(omp_num_threads=value))) == expected


def test_memory_for_less_than_four_ranks_is_a_warning() -> None:
    finding = memory.check(laptop(memory_available=GIB))
    assert finding.level == "warning"
    assert "no more than 2 ranks" in finding.do
    assert level(memory.check(laptop(memory_available=2 * GIB))) == "ok"


@pytest.mark.parametrize(
    ("total", "free", "expected"),
    [
        (64 * MIB, 64 * MIB, "problem"),
        (8 * GIB, 20 * MIB, "problem"),
        (512 * MIB, 512 * MIB, "warning"),
        (8 * GIB, 8 * GIB, "ok"),
        (None, None, "ok"),
    ],
)
def test_shared_memory_of_a_plain_docker_container_is_a_problem(
    total: int | None, free: int | None, expected: str
) -> None:
    assert level(shared_memory.check(laptop(shm_total=total, shm_free=free))) == expected


def test_a_full_shared_memory_asks_to_clean_up_and_not_for_a_larger_one() -> None:
    finding = shared_memory.check(laptop(shm_free=MIB))
    assert "killed jobs leave" in finding.do
    assert "--shm-size" not in finding.do


def test_the_need_of_shared_memory_grows_with_ranks_and_workers() -> None:
    assert shared_memory.need(ranks=4, workers=2, batch=20 * MIB) == 320 * MIB
    assert shared_memory.need(ranks=2, workers=0, batch=20 * MIB) == 0
    assert "320 MiB" in shared_memory.check(laptop()).matters


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no /dev/shm")
def test_both_ways_of_sharing_tensors_need_shared_memory() -> None:
    # Often advised against a small /dev/shm, and no cure: set_sharing_strategy("file_system").
    script = (
        "import shutil, sys, torch, torch.multiprocessing as mp\n"
        "mp.set_sharing_strategy(sys.argv[1])\n"
        "before = shutil.disk_usage('/dev/shm').used\n"
        "kept = torch.zeros(4 * 2**20).share_memory_()\n"
        "print(shutil.disk_usage('/dev/shm').used - before)\n"
    )
    for strategy in ("file_descriptor", "file_system"):
        run = subprocess.run([sys.executable, "-c", script, strategy], capture_output=True, text=True, timeout=60)
        assert int(run.stdout) >= 15 * MIB, run.stderr  # 16 MiB, less what others free meanwhile


def test_a_name_that_does_not_resolve_is_a_warning_with_its_cure() -> None:
    finding = hostname.check(laptop(address=None))
    assert finding.level == "warning"
    assert finding.do.endswith("127.0.1.1 laptop")
    assert "loopback" in hostname.check(laptop()).found
    assert "network" in hostname.check(laptop(address="10.1.2.3")).found


def test_a_taken_default_port_is_a_note_and_no_port_at_all_a_problem() -> None:
    assert level(ports.check(laptop())) == "ok"
    assert level(ports.check(laptop(port_29500_free=False))) == "note"
    assert level(ports.check(laptop(free_port=False))) == "problem"


@pytest.mark.parametrize(
    ("machine", "ranks", "backend"),
    [
        (laptop(), 4, "gloo"),
        (laptop(cpus=(Cpu(0, 0),)), 2, "gloo"),
        (laptop(cpus=tuple(Cpu(n, n) for n in range(64))), 4, "gloo"),
        (server(1), 4, "gloo"),
        (server(2), 2, "nccl"),
        (server(2, torch_cuda=None), 4, "gloo"),
        (server(4, cuda_visible_devices="0,1"), 2, "nccl"),
        (recorded("8-gpu-server"), 8, "nccl"),
        (recorded("mixed-gpus"), 2, "nccl"),
    ],
)
def test_the_advised_world_size_fits_the_machine(machine: Machine, ranks: int, backend: str) -> None:
    advice = advise(machine)
    assert (advice.ranks, advice.backend) == (ranks, backend)
    assert advice.why


def test_gpus_that_others_fill_are_not_counted() -> None:
    full = Gpu(0, "NVIDIA A100", 40 * GIB, 39 * GIB)
    free = tuple(Gpu(index, "NVIDIA A100", 40 * GIB, 0) for index in (1, 2))
    assert advise(server(gpus=(full, *free))).ranks == 2
