"""What a Slurm job's text promises, what is refused, and what the command line does. (tests/cluster runs the jobs.)"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddp_helpers import LaunchError, explain
from ddp_helpers.__main__ import main
from ddp_helpers.cluster import commands, sbatch


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('hello')\n", encoding="utf-8")
    Path("broken.py").write_text("print(\n", encoding="utf-8")
    return tmp_path


def directives(job: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?", job, re.MULTILINE))


def test_what_is_not_asked_for_is_not_in_the_job() -> None:
    wanted = directives(sbatch("train.py", nodes=3, nproc_per_node=2))
    assert (wanted["nodes"], wanted["ntasks-per-node"], wanted["cpus-per-task"]) == ("3", "1", "2")
    assert not wanted.keys() & {"gpus-per-node", "partition", "account", "requeue", "signal"}
    assert "no-requeue" in wanted


def test_what_is_asked_for_is() -> None:
    job = sbatch(
        "train.py", gpus_per_node=4, cpus_per_task=32, time="2-12", partition="gpu", account="lab-7",
        setup=["module load cuda", "source .venv/bin/activate"], interface="ib0", max_restarts=2, requeue=True,
    )  # fmt: skip
    wanted = directives(job)
    assert (wanted["gpus-per-node"], wanted["cpus-per-task"], wanted["time"]) == ("4", "32", "2-12")
    assert (wanted["partition"], wanted["account"]) == ("gpu", "lab-7")
    assert {"requeue", "signal", "open-mode"} <= wanted.keys() and "no-requeue" not in wanted
    assert "\nmodule load cuda\nsource .venv/bin/activate\n" in job
    assert "\nexport NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0\n" in job
    assert "--nproc-per-node 4 --max-restarts 2 " in job, "a rank for each GPU"


def test_no_network_is_chosen_unasked() -> None:
    assert not re.search(r"^export .*IFNAME", sbatch("train.py"), re.MULTILINE)


@pytest.mark.parametrize("requeue", [False, True])
def test_a_job_is_short_and_right_bash(requeue: bool) -> None:
    job = sbatch("train.py", "it's", "$(touch oops)", nodes=2, nproc_per_node=2, requeue=requeue)
    assert len(job.splitlines()) <= 42 and max(map(len, job.splitlines())) <= 120
    checked = subprocess.run(["bash", "-n"], input=job, text=True, capture_output=True, timeout=30)
    assert (checked.returncode, checked.stderr) == (0, "")
    (line,) = [line for line in job.splitlines() if "train.py" in line]
    assert shlex.split(line) == ["train.py", "it's", "$(touch oops)"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": 0}, "--nodes 0: at least 1"),
        ({"nproc_per_node": 0}, "--nproc-per-node 0: at least 1"),
        ({"gpus_per_node": -1}, "--gpus-per-node -1: at least 0"),
        ({"nproc_per_node": 8, "gpus_per_node": 4}, "each rank needs a GPU of its own"),
        ({"nproc_per_node": 8, "cpus_per_task": 4}, "its ranks share these cores"),
        ({"time": "1h"}, "Slurm takes minutes"),
        ({"time": "1:30:00:00"}, "Slurm takes minutes"),
        ({"time": "0:04:00", "requeue": True}, "too short"),
        ({"partition": "gpu\n#SBATCH --nodes=99"}, "this is one name"),
        ({"account": "my lab"}, "this is one name"),
        ({"interface": "ib0; true"}, "this is one name"),
        ({"setup": ["module load a\nmodule load b"]}, "one line each"),
    ],
)  # fmt: skip
def test_what_slurm_would_refuse_or_misread_is_refused_here(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(said)):
        sbatch("train.py", **options)


@pytest.mark.parametrize("time", ["5", "5:00", "0:05:00", "0-1", "0-0:05", "0-0:05:00"])
def test_five_minutes_in_all_of_slurms_words_are_long_enough_to_requeue(time: str) -> None:
    assert directives(sbatch("train.py", time=time, requeue=True))["time"] == time


def test_a_script_that_cannot_run_is_told_before_it_waits_in_a_queue() -> None:
    for make in (sbatch, lambda script: commands(script, endpoint="10.0.0.1:29400")):
        with pytest.raises(LaunchError, match=r"missing\.py: there is no such file"):
            make("missing.py")
        with pytest.raises(LaunchError, match="SyntaxError"):
            make("broken.py")


def test_each_node_gets_its_command_and_node_0_is_the_host() -> None:
    lines = commands("train.py", "--lr", "0.1", nnodes=3, nproc_per_node=4, endpoint="10.0.0.1:29400")
    words = [shlex.split(line) for line in lines]
    assert [line[line.index("--rdzv-conf") + 1] for line in words] == ["is_host=1", "is_host=0", "is_host=0"]
    assert {tuple(line[-3:]) for line in words} == {("train.py", "--lr", "0.1")}
    assert not any("--local-addr" in line for line in words), "a loopback address is no other node's"


@pytest.mark.parametrize("endpoint", ["10.0.0.1", "node1:", "node1:99999", "no de:1", ":29400", "http://node1:80"])
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    with pytest.raises(LaunchError, match="HOST:PORT of node 0"):
        commands("train.py", endpoint=endpoint)


def test_the_command_line_prints_the_same_job(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["train.py", "--nodes", "4", "--gpus-per-node", "8", "--setup", "module load a", "--setup", "module load b"]
    assert main(["slurm", *argv, "--", "--nodes", "--", "x"]) == 0
    job = sbatch("train.py", "--nodes", "--", "x", nodes=4, gpus_per_node=8, setup=["module load a", "module load b"])
    assert capsys.readouterr().out == job


def test_a_file_is_never_overwritten_unless_forced(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["slurm", "train.py", "--output", "job.sh"]
    assert main(argv) == 0
    assert Path("job.sh").read_text(encoding="utf-8") == sbatch("train.py")
    Path("job.sh").write_text("edited", encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "may hold your edits" in capsys.readouterr().err
    assert Path("job.sh").read_text(encoding="utf-8") == "edited"
    assert main([*argv, "--force"]) == 0
    assert Path("job.sh").read_text(encoding="utf-8") == sbatch("train.py")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["train.py", "--lr", "0.1"], "What belongs to the script goes behind two dashes"),
        (["missing.py"], "there is no such file"),
        (["train.py", "--nodes", "two"], "invalid int value: 'two'"),
        (["train.py", "--output", "no/folder/job.sh"], "No such file or directory"),
        ([], "SCRIPT"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["slurm", *argv])
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_making_a_job_needs_no_torch() -> None:
    program = (
        "import sys; from ddp_helpers.__main__ import main; main(['slurm', 'train.py']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# srun ends the other node once one has failed: its torchrun then says that somebody stopped it.
SLURM_LOG = """\
[rank3]: [rank3]: Traceback (most recent call last):
[rank3]: [rank3]:   File "train.py", line 8, in <module>
[rank3]: [rank3]:     raise ValueError("bad batch")
[rank3]: [rank3]: ValueError: bad batch
W1130 10:08:35 93 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 73 closing signal SIGTERM
E1130 10:08:35 93 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 76)
srun: error: node2: task 1: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=2.0
slurmstepd-node1: error: *** STEP 2.0 ON node1 CANCELLED AT 2026-11-30T10:08:38 ***
W1130 10:08:38 86 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers
"""


@pytest.mark.parametrize("prefix", ["[rank3]: [rank3]: ", "[rank3]: "])
def test_torchruns_own_line_below_an_error_is_no_part_of_it(prefix: str) -> None:
    explanation = explain(SLURM_LOG.replace("[rank3]: [rank3]: ", prefix))
    assert (explanation.root_rank, explanation.exception) == (3, "ValueError: bad batch")
