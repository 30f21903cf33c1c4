"""A Slurm of two nodes on this machine: munged, slurmctld and two slurmd, on loopback, in a folder of their own.

Nothing of the system's own Slurm is read or changed: slurm.conf, key and socket are in that folder. All that was
started ends with the tests, however they end (keeper.py).
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

SECONDS = 100.0  # for what has no limit of its own
KEEPER = str(Path(__file__).with_name("keeper.py"))
NODES = ("course1", "course2")  # names that no resolver knows
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"])
MUNGE_FILES = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "out", "seed-file": "seed"}

# CR_CPU and config_overrides: the nodes have more CPUs than this machine. cred_expire: how long a requeued job waits.
CONFIG = """\
ClusterName=course
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillWait=5
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=course Nodes={nodes[0]},{nodes[1]} Default=YES State=UP
"""


@dataclass
class Slurm:
    folder: Path
    daemons: dict[str, psutil.Process] = field(default_factory=dict)
    keeper: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        pipe = subprocess.PIPE
        self.keeper = subprocess.Popen([sys.executable, KEEPER], env=self.env, stdin=pipe, stdout=pipe, text=True)

    @property
    def env(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "OMP_"))}
        return {**ours, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command: str, **env: str) -> str:
        done = subprocess.run(command, env={**self.env, **env}, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout.strip()

    def submit(self, job: str, **env: str) -> str:
        """Submit a job's text from the working folder; its number."""
        Path("job.sh").write_text(job, encoding="utf-8")
        return self.call("sbatch", "--parsable", "job.sh", **env)

    def show(self, job: str) -> dict[str, str]:
        words = self.call("scontrol", "show", "job", "--oneliner", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, state: str) -> dict[str, str]:
        """Wait for a job's end, which must be this one."""
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        self.until(lambda: self.show(job)["JobState"] in ends, f"the end of job {job}")
        shown = self.show(job)
        log = next(iter(Path.cwd().glob(f"*-{job}.log")), None)
        assert shown["JobState"] == state, log.read_text(encoding="utf-8") if log else self.logs()
        return shown

    def processes(self, job: str) -> list[psutil.Process]:
        """What a job has started and still lives."""
        found = []
        for process in psutil.Process(self.keeper.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                if process.environ().get("SLURM_JOB_ID") == job and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def until(self, condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self.logs()}"
            time.sleep(0.1)
        return value

    def logs(self) -> str:
        return "\n".join(
            f"{path.name}:\n{path.read_text('utf-8', 'replace')[-2000:]}" for path in self.folder.glob("*.log")
        )

    def start(self, name: str, *command: str) -> None:
        assert self.keeper.stdin and self.keeper.stdout
        self.keeper.stdin.write(json.dumps([str(self.folder / f"{name}.log"), *command]) + "\n")
        self.keeper.stdin.flush()
        self.daemons[name] = psutil.Process(int(self.keeper.stdout.readline()))

    def is_up(self) -> bool:
        dead = [name for name, daemon in self.daemons.items() if daemon.status() == psutil.STATUS_ZOMBIE]
        assert not dead, f"{dead}\n{self.logs()}"
        asked = subprocess.run(
            ["sinfo", "--noheader", "--format=%D %T"], env=self.env, capture_output=True, text=True, timeout=SECONDS
        )
        return asked.stdout.split() == [str(len(NODES)), "idle"]

    def stop(self) -> None:
        """End the jobs as one should, and then everything."""
        with contextlib.suppress(AssertionError, subprocess.SubprocessError):  # it may not even have come up
            self.call("scancel", "--user", getpass.getuser())
            self.until(lambda: not self.call("squeue", "--noheader"), "the end of all jobs", 20)
        self.keeper.communicate(timeout=30)


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    missing = [name for name in NEEDED if not shutil.which(name, path=PATH)]
    if missing:
        pytest.skip(f"no Slurm here ({', '.join(missing)} missing); on Debian: apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="ddp-slurm-"))  # munge's socket needs a short path
    cluster = Slurm(folder)
    try:
        configure(folder)
        munge = [f"--{name}={folder}/munge.{suffix}" for name, suffix in MUNGE_FILES.items()]
        cluster.start("munged", "munged", "--foreground", "--force", *munge)  # --force: whatever $TMPDIR's permissions
        cluster.until((folder / "munge.socket").exists, "munged")
        cluster.start("slurmctld", "slurmctld", "-D")
        for node in NODES:
            cluster.start(node, "slurmd", "-D", "-N", node)
        cluster.until(cluster.is_up, "two idle nodes")
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)


def configure(folder: Path) -> None:
    folder.chmod(0o711)
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    config = CONFIG.format(folder=folder, host=host, user=user, nodes=NODES, ports=free_ports(3))
    (folder / "slurm.conf").write_text(config, encoding="utf-8")
