"""The same script as a Slurm job, or as a torchrun command for each node of a cluster without one.

>>> print(sbatch("scripts/train.py", "--lr", "0.1", nodes=2, nproc_per_node=4))  # doctest: +SKIP
>>> commands("scripts/train.py", nnodes=2, nproc_per_node=4, endpoint="10.0.0.1:29400")  # doctest: +SKIP
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .result import LaunchError
from .script import check_syntax

ADDRESS_OF = (
    r"""address_of() { scontrol show node "$1" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p' """
    + r"""| grep . || echo "$1"; }"""
)
TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")
PLAIN = re.compile(r"[\w.,:+@-]+")  # what names of partitions, accounts and interfaces are made of
ENDPOINT = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")


@dataclass(frozen=True)
class Job:
    """A job that `sbatch` writes as text; its options are explained there."""

    script: str
    script_args: tuple[str, ...] = ()
    nodes: int = 2
    nproc_per_node: int = 1
    cpus_per_task: int = 1
    gpus_per_node: int = 0
    time: str = "01:00:00"
    partition: str = ""
    account: str = ""
    setup: tuple[str, ...] = ()
    python: str = ""
    interface: str = ""
    max_restarts: int = 0
    requeue: bool = False

    def __str__(self) -> str:
        parts = [self._directives(), self._environment(), self._node(), self._step()]
        return "\n\n".join("\n".join(lines) for lines in parts) + "\n"

    def _directives(self) -> list[str]:
        wanted = {"gpus-per-node": self.gpus_per_node, "partition": self.partition, "account": self.account}
        lines = [
            _line("#SBATCH --job-name=" + re.sub(r"[^\w.-]", "_", Path(self.script).stem)),
            _line(f"#SBATCH --nodes={self.nodes}"),
            _line("#SBATCH --ntasks-per-node=1", "one torchrun a node, which starts the ranks"),
            _line(f"#SBATCH --cpus-per-task={self.cpus_per_task}", "for all ranks of a node, and their data loaders"),
            *(_line(f"#SBATCH --{option}={value}") for option, value in wanted.items() if value),
            _line(f"#SBATCH --time={self.time}"),
            _line("#SBATCH --output=%x-%j.log", "all ranks; its folder must exist before the job starts"),
        ]
        if not self.requeue:
            return ["#!/bin/bash", *lines, _line("#SBATCH --no-requeue", "a second start would begin from nothing")]
        return [
            "#!/bin/bash",
            *lines,
            _line("#SBATCH --requeue", "start again after a preemption or a dead node …"),
            _line("#SBATCH --open-mode=append", "… in the same log"),
            _line("#SBATCH --signal=B:USR1@120", "… and when the time is up: say so to this script 2 minutes before"),
        ]

    def _environment(self) -> list[str]:
        name = self.interface or "eth0"
        network = f"export NCCL_SOCKET_IFNAME={name} GLOO_SOCKET_IFNAME={name}"
        return [
            _line("set -eo pipefail", "the first command that fails ends the job"),
            *self.setup,
            "# A rank's share of the cores (torchrun takes 1 when it is unset); and how each line of the log begins.",
            f"export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / {self.nproc_per_node}))",
            "export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank${rank}]: '",
            "# The network that all nodes share, for when NCCL or gloo choose another one; `ip -br addr` lists them.",
            network if self.interface else f"# {network}",
        ]

    def _node(self) -> list[str]:
        torchrun = f"{shlex.quote(self.python)} -m torch.distributed.run" if self.python else "torchrun"
        return [
            "# All nodes meet on the first one, at a port of this job's own. The names of nodes need not resolve:",
            "# Slurm says at which address it reaches them itself (where it does not, the name must do).",
            ADDRESS_OF,
            'FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            'ENDPOINT=$(address_of "$FIRST"):$((20000 + SLURM_JOB_ID % 10000))',
            _line("run_node() {", "on each node, with its own SLURM_NODEID and SLURMD_NODENAME"),
            f"    exec {torchrun} \\",
            f'        --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node {self.nproc_per_node}'
            f" --max-restarts {self.max_restarts} \\",
            '        --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$ENDPOINT" \\',
            '        --rdzv-conf "is_host=$((SLURM_NODEID == 0))" --local-addr "$(address_of "$SLURMD_NODENAME")" \\',
            '        --log-dir "logs/$SLURM_JOB_ID/$SLURMD_NODENAME" --redirects 3 --tee 3 \\',
            f"        {shlex.join([Path(self.script).as_posix(), *self.script_args])}",
            "}",
            "export ENDPOINT && export -f address_of run_node",
        ]

    def _step(self) -> list[str]:
        srun = 'srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c run_node'
        explained = [
            "# When one node fails, all end, and the job's exit code is srun's: not 0.",
            "# srun is told the cores again: Slurm, from 22.05 on, may give a task one core whatever sbatch was told.",
        ]
        if not self.requeue:
            return [*explained, srun]
        return [
            "# The time is up: begin again, from the last checkpoint. The ranks get SIGTERM, and SIGKILL soon after.",
            """trap 'echo "The time is up: requeued."; scontrol requeue "$SLURM_JOB_ID"' USR1""",
            *explained,
            f"{srun} &",
            _line("wait $!", "here bash can run the trap; while a command runs it cannot"),
        ]


def _line(text: str, why: str = "") -> str:
    return f"{text:<38} # {why}" if why else text


def sbatch(
    script: str | os.PathLike[str],
    *script_args: str,
    nodes: int = 2,
    nproc_per_node: int | None = None,
    cpus_per_task: int | None = None,
    gpus_per_node: int = 0,
    time: str = "01:00:00",
    partition: str = "",
    account: str = "",
    setup: Sequence[str] = (),
    python: str = "",
    interface: str = "",
    max_restarts: int = 0,
    requeue: bool = False,
) -> str:
    """The text of a Slurm job that runs this script, unchanged, with torchrun on several nodes.

    >>> job = sbatch("scripts/train.py", "--lr", "0.1", nodes=2, gpus_per_node=4)  # doctest: +SKIP

    Args:
        script: path of the script, from the folder in which `sbatch` will be called.
        script_args: the script's own arguments.
        nodes: how many machines.
        nproc_per_node: ranks a node; as many as GPUs where GPUs are asked for, else 1.
        cpus_per_task: cores a node; as many as ranks. Data loaders want more.
        gpus_per_node: GPUs a node; 0 does not ask for any.
        time: after which Slurm ends the job: minutes, H:MM:SS, or D-HH.
        partition, account: as your cluster's handbook says.
        setup: lines that make torchrun available: ["module load cuda", "source .venv/bin/activate"].
        python: path of an interpreter that has torch, in place of the torchrun that `setup` makes available.
        interface: name of the network that all nodes share, where NCCL or gloo choose a wrong one.
        max_restarts: how often torchrun starts all ranks again after one failed.
        requeue: let Slurm start the job again, for scripts that go on from a checkpoint.

    Raises:
        LaunchError: the script cannot be run, or an option is not what Slurm takes.
    """
    nproc = nproc_per_node if nproc_per_node is not None else gpus_per_node or 1
    job = Job(
        script=os.fspath(script),
        script_args=tuple(map(str, script_args)),
        nodes=nodes,
        nproc_per_node=nproc,
        cpus_per_task=nproc if cpus_per_task is None else cpus_per_task,
        gpus_per_node=gpus_per_node,
        time=str(time),
        partition=partition,
        account=account,
        setup=tuple(setup),
        python=python,
        interface=interface,
        max_restarts=max_restarts,
        requeue=requeue,
    )
    _check(job)
    return str(job)


def _check(job: Job) -> None:
    _check_script(job.script)
    at_least = {"nodes": 1, "gpus_per_node": 0, "nproc_per_node": 1, "cpus_per_task": 1, "max_restarts": 0}
    for name, least in at_least.items():
        if getattr(job, name) < least:
            raise LaunchError(f"{_option(name)} {getattr(job, name)}: at least {least}.")
    if job.gpus_per_node and job.nproc_per_node > job.gpus_per_node:
        raise LaunchError(
            f"--nproc-per-node {job.nproc_per_node} with --gpus-per-node {job.gpus_per_node}: "
            "each rank needs a GPU of its own; NCCL refuses two ranks on one GPU."
        )
    if job.cpus_per_task < job.nproc_per_node:
        raise LaunchError(
            f"--cpus-per-task {job.cpus_per_task} with --nproc-per-node {job.nproc_per_node}: "
            "the one task on each node is torchrun, and its ranks share these cores. Ask for one a rank or more."
        )
    minutes = _minutes(job.time)
    if minutes is None:
        raise LaunchError(f"--time {job.time}: Slurm takes minutes (90), H:MM:SS (1:30:00), D-HH or D-HH:MM:SS.")
    if job.requeue and minutes < 5:
        raise LaunchError(f"--time {job.time} with --requeue: too short; the job would do little but start again.")
    if any("\n" in text for text in (job.script, *job.script_args, *job.setup)):
        raise LaunchError("A line break in the script's name, its arguments or a line of setup: one line each, please.")
    for name in ("partition", "account", "interface"):
        if getattr(job, name) and not PLAIN.fullmatch(getattr(job, name)):
            raise LaunchError(f"{_option(name)} {getattr(job, name)!r}: this is one name, without spaces or quotes.")


def _minutes(time: str) -> float | None:
    """What Slurm understands by a time limit; None when it would refuse it."""
    if not TIME.fullmatch(time):
        return None
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # D-HH, D-HH:MM, D-HH:MM:SS
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # MM, MM:SS
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_script(script: str) -> None:
    """A job may wait for hours before Python would say what is wrong with its script."""
    if not Path(script).is_file():
        raise LaunchError(f"{script}: there is no such file. Name it from this folder, where you will start the job.")
    check_syntax(Path(script), cell=False)


def commands(
    script: str | os.PathLike[str], *script_args: str, nnodes: int = 2, nproc_per_node: int = 1, endpoint: str
) -> list[str]:
    """The torchrun command for each node, to be typed there; node 0, where they all meet, comes first.

    >>> for line in commands("train.py", nnodes=2, nproc_per_node=4, endpoint="10.0.0.1:29400"):  # doctest: +SKIP
    ...     print(line)

    Two terminals of one machine play two nodes with endpoint="127.0.0.1:29400".

    Args:
        script, script_args: the script, as each node finds it, and its arguments.
        nnodes, nproc_per_node: how many nodes, and ranks on each.
        endpoint: HOST:PORT of node 0, as all nodes reach it, with a port that is free there.
    """
    _check_script(os.fspath(script))
    if nnodes < 1 or nproc_per_node < 1:
        raise LaunchError(f"nnodes={nnodes}, nproc_per_node={nproc_per_node}: each at least 1.")
    found = ENDPOINT.fullmatch(endpoint)
    if not found or not 0 < int(found[2]) < 65536:
        raise LaunchError(f"endpoint={endpoint!r}: HOST:PORT of node 0, such as 10.0.0.1:29400 or node1:29400.")
    here = ["--local-addr", found[1]] if found[1] in ("127.0.0.1", "localhost") else []
    size = ["--nnodes", str(nnodes), "--nproc-per-node", str(nproc_per_node)]
    meet = ["--rdzv-id", Path(script).stem, "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, *here]
    what = [Path(script).as_posix(), *map(str, script_args)]
    return [
        shlex.join(["torchrun", *size, *meet, "--rdzv-conf", f"is_host={int(node == 0)}", *what])
        for node in range(nnodes)
    ]
