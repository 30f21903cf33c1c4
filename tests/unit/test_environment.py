"""The environment of a run and the devices it gets: pure functions, for machines that are not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_helpers import devices
from ddp_helpers.devices import Devices, choose, count_gpus
from ddp_helpers.environment import cpu_limit, import_time_settings, rank_environment

CPU, GPU = Devices("cpu", "gloo", "this machine has no GPU"), Devices("cuda", "nccl", "")


@pytest.mark.parametrize(
    ("nproc", "gpus", "has_cuda", "device", "reason"),
    [
        (4, 0, True, "cpu", "this machine has no GPU"),
        (2, 1, True, "cpu", "this machine has 1 GPU"),  # a23: NCCL refuses two ranks on one GPU
        (8, 4, True, "cpu", "this machine has 4 GPUs"),
        (1, 1, True, "cuda", ""),
        (8, 8, True, "cuda", ""),
        (2, 8, False, "cpu", "the installed torch is a CPU build"),
    ],
)
def test_a_rank_gets_a_gpu_of_its_own_or_all_run_on_cpu(
    nproc: int, gpus: int, has_cuda: bool, device: str, reason: str
) -> None:
    chosen = choose(nproc, gpus, has_cuda)
    assert (chosen.device, chosen.reason) == (device, reason)
    assert chosen.backend == {"cpu": "gloo", "cuda": "nccl"}[device]


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        ("", 0),
        ("0", 1),
        ("0,2", 2),
        ("1,-1,2", 1),
        ("0,1,2,3,4,5", 4),
        ("GPU-1a, GPU-2b", 2),
        ("0,0", 0),
        ("0,99,1", 1),
        ("NoDevFiles", 0),
    ],
)
def test_hidden_gpus_are_not_counted(monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int) -> None:
    monkeypatch.setattr(devices, "_nvml_count", lambda: 4)
    assert count_gpus({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == count


def test_what_launchers_and_jupyter_left_is_dropped() -> None:
    base = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x", "PET_NNODES": "2"}
    env = rank_environment(CPU, 2, {}, {**base, "JPY_PARENT_PID": "1", "HOME": "/h"}, cores=2)
    assert not set(env) & {*base, "JPY_PARENT_PID"}
    assert env["HOME"] == "/h"


@pytest.mark.parametrize(("cores", "nproc", "threads"), [(8, 2, "4"), (2, 4, "1"), (1, 1, "1"), (7, 2, "3")])
def test_ranks_share_the_cores(cores: int, nproc: int, threads: str) -> None:
    assert rank_environment(CPU, nproc, {}, {}, cores=cores)["OMP_NUM_THREADS"] == threads


def test_the_users_settings_win() -> None:
    env = rank_environment(CPU, 2, {"GLOO_SOCKET_IFNAME": "eth0", "MPLBACKEND": "svg"}, {"OMP_NUM_THREADS": "5"})
    assert (env["GLOO_SOCKET_IFNAME"], env["MPLBACKEND"], env["OMP_NUM_THREADS"]) == ("eth0", "svg", "5")


@pytest.mark.parametrize(("platform", "interface"), [("linux", "lo"), ("darwin", "lo0")])
def test_ranks_of_one_machine_talk_over_loopback(platform: str, interface: str) -> None:
    """a19: also where the machine's name leads nowhere"""
    env = rank_environment(CPU, 2, {}, {}, platform=platform, cores=2)
    assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == interface
    assert "USE_LIBUV" not in env


def test_windows_gets_no_libuv_and_utf8() -> None:
    """a08"""
    env = rank_environment(CPU, 2, {}, {}, platform="win32", cores=2)
    assert (env["USE_LIBUV"], env["PYTHONUTF8"]) == ("0", "1")
    assert "GLOO_SOCKET_IFNAME" not in env


def test_gpus_are_hidden_only_from_runs_on_cpu() -> None:
    assert rank_environment(CPU, 2, {}, {"CUDA_VISIBLE_DEVICES": "0"}, cores=2)["CUDA_VISIBLE_DEVICES"] == ""
    assert rank_environment(GPU, 2, {}, {"CUDA_VISIBLE_DEVICES": "2,3"}, cores=2)["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_settings_that_a_fork_can_still_obey_are_no_import_time_settings() -> None:
    later = {
        "OMP_NUM_THREADS": "2",
        "TORCH_DISTRIBUTED_DEBUG": "INFO",
        "PYTHONPATH": "x",
        "TORCHELASTIC_X": "1",
        "TORCHINDUCTOR_CACHE_DIR": "y",
    }
    assert import_time_settings({**later, "TORCH_LOGS": "a", "MKL_NUM_THREADS": "1"}) == {
        "TORCH_LOGS": "a",
        "MKL_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "250000 100000"}, 2.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
    ],
)
def test_a_containers_quota_is_read_from_both_kinds_of_cgroup(
    files: dict[str, str], limit: float | None, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content + "\n")
    assert cpu_limit(tmp_path) == limit


def test_ranks_in_a_container_share_its_quota_and_not_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_helpers.environment.cpu_limit", lambda: 1.5)
    assert rank_environment(CPU, 1, {}, {})["OMP_NUM_THREADS"] == "1"
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr("ddp_helpers.environment.cpu_limit", lambda: 8.0)
    assert rank_environment(CPU, 2, {}, {})["OMP_NUM_THREADS"] == "4"
