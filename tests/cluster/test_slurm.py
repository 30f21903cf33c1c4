"""The job that `cluster.sbatch` writes, run by a real Slurm: four ranks on two nodes, a failure, a second start."""

from __future__ import annotations

import json
import re
import socket
import sys
from ipaddress import ip_address
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import psutil
import pytest

from ddp_helpers import explain
from ddp_helpers.cluster import sbatch
from ddp_helpers.slurm import main as slurm_command

if TYPE_CHECKING:
    from conftest import Slurm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HELLO = """
    import json, os, sys
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"I am rank {dist.get_rank()}")
    with open(f"seen-{dist.get_rank()}.json", "w") as file:
        json.dump({"argv": sys.argv[1:], "sum": total.item(), "environment": dict(os.environ)}, file)
    dist.barrier()
    dist.destroy_process_group()
"""

# Ranks 0 and 1, on their own node, would go on for a quarter of an hour: they wait for nobody.
FAIL = """
    import time
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 3:
        raise ValueError("bad batch")
    time.sleep(1000)
"""

AGAIN = """
    import os, signal, time
    import torch.distributed as dist

    def save(number, frame):
        open(f"saved-{rank}", "w").close()
        os._exit(0)

    rank, restarts = os.environ["RANK"], os.environ.get("SLURM_RESTART_COUNT", "0")
    dist.init_process_group("gloo")
    dist.barrier()
    if restarts == "0":
        signal.signal(signal.SIGTERM, save)
        open(f"started-{rank}", "w").close()
        time.sleep(1000)
    print(f"start {restarts} of rank {rank}")
    dist.barrier()
    dist.destroy_process_group()
"""

TRICKY = ["it's", '"quoted"', "$HOME", "two words", "--nodes", "*"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    return tmp_path


def script(name: str, text: str) -> str:
    Path(name).write_text(dedent(text), encoding="utf-8")
    return name


def test_four_ranks_on_two_nodes_see_what_torchrun_promises(slurm: Slurm) -> None:
    for node in ("course1", "course2"):
        with pytest.raises(socket.gaierror):  # the job must not need a resolver
            socket.getaddrinfo(node, None)
    path = script("scripts/hello.py", HELLO)
    setup = f"echo set up with {Path(sys.executable).name}"
    argv = [path, "--nproc-per-node", "2", "--interface", "lo", "--time", "5", "--setup", setup, "--output", "job.sh"]
    assert slurm_command([*argv, "--", *TRICKY]) == 0
    job = slurm.submit(Path("job.sh").read_text(encoding="utf-8"))
    assert slurm.wait(job, "COMPLETED")["ExitCode"] == "0:0"

    ranks = [json.loads(Path(f"seen-{rank}.json").read_text(encoding="utf-8")) for rank in range(4)]
    assert [rank["sum"] for rank in ranks] == [4.0] * 4
    assert [rank["argv"] for rank in ranks] == [TRICKY] * 4
    environments = [rank["environment"] for rank in ranks]
    assert [(e["GROUP_RANK"], e["LOCAL_RANK"]) for e in environments] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
    ]
    nodes = [e["SLURMD_NODENAME"] for e in environments]
    assert (nodes[0], nodes[2]) == (nodes[1], nodes[3]) and {*nodes} == {"course1", "course2"}
    assert {e["OMP_NUM_THREADS"] for e in environments} == {"1"}

    log = Path(f"hello-{job}.log").read_text(encoding="utf-8").splitlines()
    assert setup.removeprefix("echo ") in log
    assert sorted(line for line in log if "I am" in line) == [f"[rank{rank}]: I am rank {rank}" for rank in range(4)]
    for rank, node in enumerate(nodes):
        (of_rank,) = Path("logs", job, node).glob(f"*/attempt_0/{rank % 2}/stdout.log")
        assert of_rank.read_text(encoding="utf-8") == f"I am rank {rank}\n"


def test_a_failing_rank_fails_the_job_and_explain_names_it(slurm: Slurm) -> None:
    path = script("scripts/fail.py", FAIL)
    text = sbatch(path, nproc_per_node=2, interface="lo", time="5", python=sys.executable, requeue=True)
    job = slurm.submit(text, SLURM_LABELIO="1")  # srun --label: each line begins with a number, a node's and no rank's
    slurm.until(lambda: len(slurm.processes(job)) > 6, "torchrun and two ranks on each node")
    slurm.wait(job, "FAILED")
    slurm.until(lambda: not slurm.processes(job), "the end of the job's processes", 10)

    log = Path(f"fail-{job}.log").read_text(encoding="utf-8")
    plain, labels = re.subn("^[01]: ", "", log, flags=re.MULTILINE)
    assert labels > 10
    for explanation in (explain(log), explain(plain), explain(Path(f"fail-{job}.log"))):
        assert (explanation.known, explanation.root_rank) == (True, 3), explanation
        assert (explanation.exception, "line 8" in explanation.place) == ("ValueError: bad batch", True)


def test_a_job_that_is_told_that_its_time_is_up_starts_again(slurm: Slurm) -> None:
    path = script("scripts/again.py", AGAIN)
    job = slurm.submit(sbatch(path, nproc_per_node=2, interface="lo", time="10", requeue=True))
    slurm.until(lambda: len(list(Path.cwd().glob("started-*"))) == 4, "the first start")
    slurm.call("scancel", "--signal=USR1", "--batch", job)  # what --signal=B:USR1@120 does two minutes before the end
    slurm.until(lambda: slurm.show(job)["JobState"] == "PENDING", "the requeue")
    slurm.call("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert slurm.wait(job, "COMPLETED")["Restarts"] == "1"
    log = Path(f"again-{job}.log").read_text(encoding="utf-8")
    assert "The time is up: requeued." in log
    assert sorted(re.findall(r"start \d of rank \d", log)) == [f"start 1 of rank {rank}" for rank in range(4)]
    assert len(list(Path.cwd().glob("saved-*"))) == 4, "SIGTERM must have reached all ranks before SIGKILL"


def test_the_daemons_listen_on_loopback_only(slurm: Slurm) -> None:
    seen = []
    for daemon in slurm.daemons.values():
        seen += [c.laddr.ip for c in daemon.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert len(seen) == 3, "slurmctld and two slurmd"
    assert all(ip_address(ip).is_loopback for ip in seen)
