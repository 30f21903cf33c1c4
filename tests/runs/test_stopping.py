"""Nothing is left behind: whatever is sent to whom, no process of a run outlives it, and the next run works.

A "kernel" is a process of its own here that calls launch(); where it matters, it is Jupyter's. Each rank starts
children of every kind: in its session, in a session of their own, forked, and a DataLoader's worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the warm engine and /proc are Linux's")

SLOW = 60.0  # s, for what has no limit of its own: a busy machine starts slowly

KERNEL = """
import json, os, signal, sys
from ddp_helpers import LaunchError, launch, warm


def interrupt(number, frame):
    if launching:  # or else an interrupt that comes too late would end this kernel
        raise KeyboardInterrupt


launching = False
signal.signal(signal.SIGINT, interrupt)

if sys.argv[2] == "warm":
    warm.start_early()  # as %load_ext ddp_helpers does
answers, sys.stdout = sys.stdout, open(sys.argv[1], "w", encoding="utf-8", buffering=1)
for line in sys.stdin:
    script, args, options = json.loads(line)
    answer = {"error": None, "text": "", "ranks": []}
    try:
        launching = True
        run = launch(script, *args, **options)
        launching = False
        answer["ranks"] = [rank.stdout for rank in run.ranks]
    except (LaunchError, KeyboardInterrupt) as error:
        launching = False
        answer["error"], answer["text"] = type(error).__name__, str(error)
    answers.write(json.dumps(answer) + "\\n")
    answers.flush()
"""

BUSY = """
import os, signal, subprocess, sys, threading, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

state, rank = sys.argv[1], int(os.environ["RANK"])
if state == "stubborn":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sleep", "1000"], start_new_session=True)
worker = iter(DataLoader(range(1000), num_workers=1))
next(worker)
dist.init_process_group("gloo")


def say_ready():
    main = threading.main_thread().ident
    while state == "blocked" and rank == 0 and sys._current_frames()[main].f_code.co_name != "all_reduce":
        time.sleep(0.001)
    with open(f"ready-{rank}.tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"ready-{rank}.tmp", f"ready-{rank}")


threading.Thread(target=say_ready, daemon=True).start()
if state == "blocked" and rank == 0:
    dist.all_reduce(torch.ones(1))
matrix = torch.ones(256, 256)
while True:
    if state != "computing":
        time.sleep(1000)
    elif rank == 0:
        sum(range(1000))
    else:
        matrix @ matrix
"""

LEAVE = """
import os, subprocess

here = subprocess.Popen(["sleep", "1000"])
hidden = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={})
daemon = subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
print(here.pid, hidden.pid, daemon.stdout)
os._exit(0)  # without Python's warning of children that still run
"""

HELLO = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print(int(one))
"""

RESTART = """
import os

if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os._exit(7)
dist.all_reduce(one)
"""


def until(condition: Callable[[], Any], seconds: float) -> Any:
    """The condition's value once it is true, or when the time is over."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


def limit() -> float:
    """Seconds after which nothing may be left of a killed run: 2, where every process that wants a core has one.

    Ending a process takes a turn on a core, too. With four times as many as cores in the queue, 2 s were exceeded.
    """
    return 2.0 * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    living = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil compares start times: a pid used again is not alive
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def is_parent(process: psutil.Process) -> bool:
    """Whether this child of a kernel is its warm parent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return "parent.main()" in " ".join(process.cmdline())
    return False


@dataclass
class Busy:
    """A run that is going on, as it was when its ranks had said that they are ready."""

    parent: psutil.Process | None
    agents: list[psutil.Process]
    ranks: list[psutil.Process]
    processes: list[psutil.Process]  # agents, ranks, and all below them

    def left(self) -> list[psutil.Process]:
        """Which of its processes live, and what else is in its ranks' sessions."""
        sessions = {rank.pid for rank in self.ranks}
        members = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) in sessions:
                    members.append(process)
        return alive(self.processes + members)


def look_at(kernel: psutil.Process, ranks: list[int]) -> Busy:
    everything = kernel.children(recursive=True)
    parent = next((process for process in kernel.children() if is_parent(process)), None)
    agents = list({pid: psutil.Process(psutil.Process(pid).ppid()) for pid in ranks}.values())
    agents = list({agent.pid: agent for agent in agents}.values())
    busy = Busy(parent, agents, [psutil.Process(pid) for pid in ranks], [p for p in everything if p != parent])
    # Or else a test could pass that watches too little: rank, forked child, two sleeps, one worker.
    assert len(busy.processes) >= len(agents) + 5 * len(ranks)
    return busy


def ready_ranks(folder: Path, count: int = 2) -> list[int]:
    """The pids of the ranks of busy.py, waited for and forgotten."""
    files = [folder / f"ready-{rank}" for rank in range(count)]
    assert until(lambda: all(file.exists() for file in files), SLOW), list((folder / "runs").rglob("*.log"))
    pids = [int(file.read_text(encoding="utf-8")) for file in files]
    for file in files:
        file.unlink()
    return pids


class Kernel:
    """A process that runs what it is told, one run after the other."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder, self.engine = folder, engine
        self.owes_an_answer = False
        self.log = folder / f"kernel-{time.time_ns()}.log"
        self.process = subprocess.Popen(
            [sys.executable, "-c", KERNEL, str(self.log), engine],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def tell(self, script: str, *args: str, **options: Any) -> None:
        assert self.process.stdin
        order = ["scripts/" + script, args, {"nproc_per_node": 2, "engine": self.engine, **options}]
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        self.owes_an_answer = True

    def answer(self, seconds: float = SLOW) -> dict[str, Any]:
        """What became of the run."""
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], seconds)[0], "the run has not ended"
        line = self.process.stdout.readline()
        assert line, "the kernel has died"
        self.owes_an_answer = False
        return dict(json.loads(line))

    def run(self, script: str, *args: str, **options: Any) -> dict[str, Any]:
        self.tell(script, *args, **options)
        return self.answer()

    def begin(self, state: str, ranks: int = 2, **options: Any) -> Busy:
        """Start busy.py; it goes on until someone stops it."""
        self.tell("busy.py", state, **options)
        return look_at(psutil.Process(self.process.pid), ready_ranks(self.folder, ranks))

    def interrupt(self, again: bool = False) -> None:
        """The stop button: SIGINT to the kernel's whole process group. `again`: twice, the ladder having begun."""
        before = len(self.shown())
        os.killpg(self.process.pid, signal.SIGINT)
        if again:
            assert until(lambda: "stopping the ranks" in self.shown()[before:], SLOW)
            os.killpg(self.process.pid, signal.SIGINT)

    def shown(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def works(self) -> bool:
        answer = self.run("hello.py")
        return answer["ranks"] == ["2\n", "2\n"] or pytest.fail(f"the next run: {answer}")

    def close(self) -> None:
        family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        self.process.kill()
        self.process.communicate()
        until(lambda: not alive(family), limit())
        for process in alive(family):  # only after a test that failed
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notebook")
    (path / "scripts").mkdir()
    (path / "scripts" / "busy.py").write_text(BUSY, encoding="utf-8")
    (path / "scripts" / "hello.py").write_text(HELLO, encoding="utf-8")
    return path


@pytest.fixture
def start_kernel(folder: Path) -> Iterator[Callable[[str], Kernel]]:
    """For tests that their kernel does not survive."""
    kernels: list[Kernel] = []

    def start(engine: str) -> Kernel:
        kernels.append(Kernel(folder, engine))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture(scope="module")
def shared_kernels() -> Iterator[dict[str, Kernel]]:
    kernels: dict[str, Kernel] = {}
    yield kernels
    for kernel in kernels.values():
        kernel.close()


@pytest.fixture
def kernel(request: pytest.FixtureRequest, folder: Path, shared_kernels: dict[str, Kernel]) -> Iterator[Kernel]:
    """A kernel that other tests use too; the parameter is its engine."""
    engine = getattr(request, "param", "warm")
    if engine not in shared_kernels:
        shared_kernels[engine] = Kernel(folder, engine)
    yield shared_kernels[engine]
    if shared_kernels[engine].owes_an_answer:  # a test failed: the next one starts afresh
        shared_kernels.pop(engine).close()


warm_and_cold = pytest.mark.parametrize("kernel", ["warm", "cold"], indirect=True)
all_signals = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
all_states = pytest.mark.parametrize("state", ["computing", "blocked", "stubborn"])


def signal_and_wait(kernel: Kernel, run: Busy, victim: psutil.Process, number: int, survives: bool = False) -> None:
    """Send the signal; the run must end, be gone with all it started, and make way for another.

    `survives`: this signal alone cannot end the run, so the learner presses the stop button too, twice.
    """
    victim.send_signal(number)
    if number == signal.SIGKILL:
        assert until(lambda: not run.left(), limit()), run.left()
    if survives:
        kernel.interrupt(again=True)
        assert kernel.answer()["error"] == "RunInterrupted"
    else:
        assert kernel.answer()["error"] in ("RankFailed", "LaunchError")
    assert run.left() == []
    assert kernel.works()


@all_signals
@pytest.mark.parametrize(
    ("state", "rank"), [("computing", 0), ("computing", 1), ("blocked", 0), ("stubborn", 0)], ids=str
)
def test_a_signalled_rank_takes_its_run_along(kernel: Kernel, number: int, state: str, rank: int) -> None:
    run = kernel.begin(state)
    # A rank that waits in gloo for another has no Python running that could notice SIGINT.
    survives = number != signal.SIGKILL and (state == "stubborn" or (state == "blocked" and number == signal.SIGINT))
    signal_and_wait(kernel, run, run.ranks[rank], number, survives)


@all_signals
@all_states
def test_a_signalled_agent_takes_its_run_along(kernel: Kernel, number: int, state: str) -> None:
    run = kernel.begin(state)
    signal_and_wait(kernel, run, run.agents[0], number)


@all_signals
@all_states
def test_a_signalled_warm_parent_takes_its_run_along(kernel: Kernel, number: int, state: str) -> None:
    run = kernel.begin(state)
    assert run.parent
    signal_and_wait(kernel, run, run.parent, number)


@all_states
def test_an_interrupted_kernel_ends_its_run_and_goes_on(kernel: Kernel, state: str) -> None:
    run = kernel.begin(state)
    kernel.interrupt()
    answer = kernel.answer()
    assert (answer["error"], run.left()) == ("RunInterrupted", [])
    assert "no process is left" in kernel.shown().splitlines()[-1]
    assert run.parent and alive([run.parent]), "the next run would be slow"
    assert kernel.works()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@all_states
def test_a_killed_kernel_leaves_no_process(start_kernel: Callable[[str], Kernel], number: int, state: str) -> None:
    kernel = start_kernel("warm")
    run = kernel.begin(state)
    assert run.parent
    kernel.process.send_signal(number)
    assert until(lambda: not (run.left() or alive([run.parent])), limit()) is not False, run.left()


# The cold engine has no warm parent; its kernel, agent and ranks do the same as the warm ones. Its starts are slow, so
# only the hardest case of each.

in_a_cold_kernel = pytest.mark.parametrize("kernel", ["cold"], indirect=True)


@in_a_cold_kernel
def test_a_killed_rank_takes_its_cold_run_along(kernel: Kernel) -> None:
    run = kernel.begin("blocked")
    signal_and_wait(kernel, run, run.ranks[0], signal.SIGKILL)


@in_a_cold_kernel
def test_a_killed_agent_takes_its_cold_run_along(kernel: Kernel) -> None:
    run = kernel.begin("stubborn")
    signal_and_wait(kernel, run, run.agents[0], signal.SIGKILL)


@in_a_cold_kernel
def test_an_interrupt_ends_a_cold_run(kernel: Kernel) -> None:
    run = kernel.begin("stubborn")
    kernel.interrupt()
    assert (kernel.answer()["error"], run.left()) == ("RunInterrupted", [])


def test_a_killed_kernel_leaves_no_process_of_a_cold_run(start_kernel: Callable[[str], Kernel]) -> None:
    kernel = start_kernel("cold")
    run = kernel.begin("stubborn")
    kernel.process.kill()
    assert until(lambda: not run.left(), limit()), run.left()


# ---- other ways to end


def test_a_second_interrupt_skips_the_ladder(kernel: Kernel) -> None:
    run = kernel.begin("stubborn")
    for process in run.processes:
        process.suspend()  # neither SIGINT nor SIGTERM reaches a stopped process, nor can it see its lifeline cut
    began = time.monotonic()
    kernel.interrupt(again=True)
    assert (kernel.answer()["error"], run.left()) == ("RunInterrupted", [])
    assert time.monotonic() - began < 1.5  # s; one step of the ladder alone is 3
    assert kernel.works()


def test_a_hammered_stop_button_ends_everything(kernel: Kernel) -> None:
    run = kernel.begin("stubborn")
    while not select.select([kernel.process.stdout], [], [], 0.003)[0]:
        kernel.process.send_signal(signal.SIGINT)
    answer = kernel.answer()  # the last interrupt may come after the run
    assert answer["error"] in ("RunInterrupted", "KeyboardInterrupt") and run.left() == []
    assert kernel.works()


def test_a_stopped_rank_is_ended_at_the_timeout(kernel: Kernel) -> None:
    run = kernel.begin("computing", timeout=2)
    run.ranks[0].suspend()
    assert (kernel.answer()["error"], run.left()) == ("RunTimeout", [])
    assert kernel.works()


def test_a_stopped_rank_does_not_outlive_a_killed_kernel(start_kernel: Callable[[str], Kernel]) -> None:
    kernel = start_kernel("warm")
    run = kernel.begin("blocked")
    run.ranks[0].suspend()
    kernel.process.kill()
    assert until(lambda: not run.left(), limit()), run.left()


@warm_and_cold
def test_what_a_rank_leaves_in_the_background_ends_with_the_run(kernel: Kernel, folder: Path) -> None:
    (folder / "scripts" / "leave.py").write_text(LEAVE, encoding="utf-8")
    answer = kernel.run("leave.py")
    pids = [int(pid) for rank in answer["ranks"] for pid in rank.split()]
    assert len(pids) == 6
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_both_simulated_nodes_end_when_one_agent_is_signalled(kernel: Kernel, number: int) -> None:
    run = kernel.begin("stubborn", nproc_per_node=1, nnodes=2)
    assert len(run.agents) == 2
    run.agents[1].send_signal(number)
    kernel.interrupt(again=True)  # torchrun leaves the other node waiting for this one
    assert (kernel.answer()["error"], run.left()) == ("RunInterrupted", [])
    assert kernel.works()


def test_both_simulated_nodes_end_with_a_killed_kernel(start_kernel: Callable[[str], Kernel]) -> None:
    kernel = start_kernel("warm")
    run = kernel.begin("stubborn", nproc_per_node=1, nnodes=2)
    kernel.process.kill()
    assert until(lambda: not run.left(), limit()), run.left()


@warm_and_cold
def test_torchrun_restarts_ranks_after_a_failure(kernel: Kernel, folder: Path) -> None:
    """Several times in a row: with torch's own rendezvous this fails now and then (pytorch#135712)."""
    (folder / "scripts" / "restart.py").write_text(HELLO + RESTART, encoding="utf-8")
    for _ in range(5 if kernel.engine == "warm" else 2):
        answer = kernel.run("restart.py", torchrun_args=["--max-restarts", "1"])
        assert (answer["error"], answer["ranks"]) == (None, ["2\n2\n", "2\n2\n"]), answer


# ---- the same in Jupyter's kernel


class Notebook:
    """One of Jupyter's kernels, as JupyterLab starts, interrupts and restarts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder))
        self.connect()

    def connect(self) -> None:
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SLOW)

    def begin(self) -> Busy:
        self.execute("launch('scripts/busy.py', 'stubborn', nproc_per_node=2)")
        provisioner = self.manager.provisioner
        assert provisioner
        return look_at(psutil.Process(provisioner.pid), ready_ranks(self.folder))

    def execute(self, code: str) -> None:
        self.cell = self.client.execute("%load_ext ddp_helpers\nfrom ddp_helpers import launch\n" + code)

    def reply(self) -> dict[str, Any]:
        while (message := self.client.get_shell_msg(timeout=SLOW))["parent_header"]["msg_id"] != self.cell:
            pass
        return dict(message["content"])

    def wait_for_text(self, text: str) -> None:
        while text not in str(self.client.get_iopub_msg(timeout=SLOW)["content"]):
            pass

    def works(self) -> bool:
        self.execute("launch('scripts/hello.py', nproc_per_node=2)")
        return bool(self.reply()["status"] == "ok")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(folder: Path) -> Iterator[Notebook]:
    notebook = Notebook(folder)
    yield notebook
    notebook.close()


def test_the_stop_button_of_jupyter_ends_a_run(notebook: Notebook) -> None:
    run = notebook.begin()
    notebook.manager.interrupt_kernel()  # SIGINT to the kernel's process group
    notebook.wait_for_text("stopping the ranks")
    notebook.manager.interrupt_kernel()
    assert (notebook.reply()["ename"], run.left()) == ("RunInterrupted", [])
    assert notebook.works()


@pytest.mark.parametrize("now", [True, False], ids=["killed", "asked"])
def test_a_restart_of_jupyters_kernel_leaves_no_process(notebook: Notebook, now: bool) -> None:
    run = notebook.begin()
    notebook.client.stop_channels()
    notebook.manager.shutdown_wait_time = 0.5
    notebook.manager.restart_kernel(now=now)
    assert until(lambda: not run.left() and not alive([run.parent] if run.parent else []), limit()), run.left()
    notebook.connect()
    assert notebook.works()
