"""How fast a launch is, what it costs, and that it costs training nothing: ``make bench``.

Everything is measured in one process, interleaved, and printed as medians and ratios; machines are noisy. "hello" is
init, one all_reduce, end; "DDP" wraps a Linear and takes one step. Options: --rounds N, --only launch|memory|...
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from ddp_helpers import RankFailed, launch, warm
from ddp_helpers.command import Command
from ddp_helpers.launch import Options, run
from ddp_helpers.outcome import read_json

HELLO = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
t = torch.ones(1)
dist.all_reduce(t)
assert t.item() == dist.get_world_size()
"""
# Without it, gloo's threads abort plain torchrun's ranks at exit now and then ("terminate called without …", −6).
END = "\ndist.destroy_process_group()\n"
DDP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
"""
# Two hundred steps after ten to warm up; the rank prints its own throughput, so that starting and ending do not count.
TRAIN = """
import time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(256, 512)
for step in range(210):
    if step == 10:
        dist.barrier()
        started = time.perf_counter()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
print(f"steps/s={200 / (time.perf_counter() - started):.2f}")
"""
WAIT = f"""{HELLO}
import time
from pathlib import Path

Path(f"ready{{dist.get_rank()}}.flag").touch()
while not Path("stop.flag").exists():
    time.sleep(0.05)
"""
LINES = "for i in range(250_000): print('line', i)\n"


ENVIRONMENT = dict(os.environ)  # notebook_launcher leaves its marks in the process's own


def write(name: str, text: str) -> str:
    path = Path("scripts") / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def run_warm(script: str, ranks: int) -> str:
    result = run(Command(script, nproc=ranks), Options(silent=True, engine="warm"))
    return result.ranks[0].stdout


def run_torchrun(script: str, ranks: int) -> tuple[str, float]:
    """The output and the seconds of a run of the torchrun command that ends well.

    Its ranks abort now and then when they end ("terminate called without an active exception", −6); then once more.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), script]
    threads = str(max(1, len(os.sched_getaffinity(0)) // ranks))  # what a warm rank gets
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": ""}
    while True:
        started = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        taken = time.perf_counter() - started
        if done.returncode == 0:
            return done.stdout, taken
        if "terminate called without an active exception" not in done.stderr:
            raise RuntimeError(done.stderr)
        print("  (torchrun's ranks aborted at their end; once more)", flush=True)


def run_notebook_launcher(script: str, ranks: int) -> None:
    from accelerate import notebook_launcher

    code = compile(Path(script).read_text(encoding="utf-8"), script, "exec")
    with contextlib.redirect_stdout(io.StringIO()):
        notebook_launcher(_execute, (code,), num_processes=ranks, use_port=str(free_port()))


def notebook_launcher_seconds(script: str, ranks: int, repeats: int) -> list[float]:
    """Times of notebook_launcher in a process of its own, which has torch imported and has launched once.

    It forks the process it is called in. After some launches that one is full of threads, and a fork of it may hang.
    """
    command = [sys.executable, __file__, "--notebook-launcher", script, str(ranks), str(repeats)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               start_new_session=True)  # fmt: skip
    try:
        output, _ = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        print("  (notebook_launcher hung, and is left out of this round)", flush=True)
        return []
    return [float(line) for line in output.split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _execute(code: object) -> None:
    exec(code, {"__name__": "__main__"})  # type: ignore[arg-type]


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def bench_launch(rounds: int) -> None:
    print("\nLaunch, from call to return (s, medians; best in brackets)")
    print(f"{'':12}{'warm':>16}{'notebook_launcher':>22}{'torchrun':>18}{'torchrun/warm':>16}{'n_l/warm':>10}")
    for name, text in (("hello", HELLO + END), ("DDP", DDP + END)):
        script = write(name, text)
        for ranks in (2, 4):
            times: dict[str, list[float]] = {"warm": [], "notebook_launcher": [], "torchrun": []}
            for _ in range(rounds):
                times["warm"] += [seconds(functools.partial(run_warm, script, ranks)) for _ in range(5)]
                times["notebook_launcher"] += notebook_launcher_seconds(script, ranks, 3)
                times["torchrun"].append(run_torchrun(script, ranks)[1])
            median = {launcher: statistics.median(values or [math.nan]) for launcher, values in times.items()}
            row = "".join(
                f"{median[launcher]:>{width}.3f} ({min(times[launcher] or [math.nan]):.3f})"
                for launcher, width in (("warm", 8), ("notebook_launcher", 14), ("torchrun", 10))
            )
            ratios = f"{median['torchrun'] / median['warm']:>16.1f}"
            ratios += f"{median['notebook_launcher'] / median['warm']:>10.1f}"
            print(f"{name + f', {ranks}':12}{row}{ratios}", flush=True)


def bench_parts(rounds: int) -> None:
    """Where the time of a warm hello goes, on the clocks of the machine, from the notes that a run leaves."""
    stamped = f"import time; a = time.time()\n{HELLO}{END}b = time.time(); print(f'a={{a}} b={{b}}')\n"
    script = write("parts", stamped)
    parts: dict[str, list[float]] = {}
    for _ in range(5 * rounds):
        started = time.time()
        result = run(Command(script, nproc=2), Options(silent=True, engine="warm"))
        ended = time.time()
        begun = max(m["a"] for m in result.metrics)
        finished = max(m["b"] for m in result.metrics)
        noted = max(read_json(rank.folders[0] / "rank.json")["time"] for rank in result.ranks)
        for name, value in (
            ("request, fork of agent, rendezvous, fork of ranks", noted - started),
            ("ranks made fresh, script read", begun - noted),
            ("script: init_process_group, all_reduce, destroy", finished - begun),
            ("end of ranks and agent, result read", ended - finished),
        ):
            parts.setdefault(name, []).append(value)
    print("\nWhere a warm hello on 2 ranks spends its time (ms, medians)")
    for name, values in parts.items():
        print(f"  {name:52}{statistics.median(values) * 1e3:8.1f}")


FAIL = """
import time, torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print(f"failed={time.time()}")
    print(1 / 0)
dist.all_reduce(torch.ones(1))
"""


def bench_failure(rounds: int) -> None:
    """From the line that fails in a rank to RankFailed in the kernel, while the others wait in all_reduce."""
    script = write("fail", FAIL)
    taken = []
    for _ in range(5 * rounds):
        try:
            run(Command(script, nproc=4), Options(silent=True, engine="warm"))
        except RankFailed as failed:
            taken.append(time.time() - failed.run.metrics[0]["failed"])
    print("\nFrom the failing line of rank 1 of 4 to the error in the cell, warm (s)")
    print(f"  median {statistics.median(taken):.3f}   slowest of {len(taken)}: {max(taken):.3f}")


def pss(processes: list[psutil.Process]) -> float:
    return sum(process.memory_full_info().pss for process in processes) / 2**20


def bench_memory(rounds: int) -> None:
    """Four ranks that wait after hello: the proportional set sizes of all processes that exist for runs, added up."""
    script = write("wait", WAIT)
    parent = warm.parent(dict(os.environ)).pid
    found = {}
    for engine in ("warm", "cold"):
        for path in Path().glob("*.flag"):
            path.unlink()
        options = Options(silent=True, engine=engine)
        thread = threading.Thread(target=run, args=(Command(script, nproc=4), options))
        thread.start()
        while len(list(Path().glob("ready*.flag"))) < 4:
            time.sleep(0.05)
        roots = [child for child in psutil.Process().children() if (child.pid == parent) == (engine == "warm")]
        found[engine] = pss([process for root in roots for process in (root, *root.children(recursive=True))])
        Path("stop.flag").touch()
        thread.join()
    print("\nMemory of 4 ranks after hello, with their agent (MB, sum of PSS)")
    print(f"  warm, parent included {found['warm']:,.0f}   new interpreters {found['cold']:,.0f}   "
          f"ratio {found['cold'] / found['warm']:.2f}")  # fmt: skip


def bench_throughput(rounds: int) -> None:
    script = write("train", TRAIN + END)
    speeds: dict[str, list[float]] = {"warm": [], "torchrun": []}
    for _ in range(2 * rounds):
        for launcher, output in (("warm", run_warm(script, 2)), ("torchrun", run_torchrun(script, 2)[0])):
            speeds[launcher].append(float(output.split("steps/s=")[1].split()[0]))
    ratios = [w / t for w, t in zip(speeds["warm"], speeds["torchrun"], strict=True)]
    print("\nTraining throughput inside a run, 2 ranks (steps/s, medians)")
    print(f"  warm {statistics.median(speeds['warm']):.1f}   torchrun {statistics.median(speeds['torchrun']):.1f}   "
          f"ratio of pairs {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f})")  # fmt: skip


def bench_lines(rounds: int) -> None:
    script = write("lines", LINES)
    taken = seconds(lambda: run(Command(script, nproc=4), Options(silent=True, engine="warm")))
    shown = seconds(lambda: _shown(script))
    plain = run_torchrun(script, 4)[1]
    print("\n1,000,000 lines printed by 4 ranks (s)")
    print(f"  warm, followed {taken:.1f}   and displayed {shown:.1f}   torchrun into one pipe {plain:.1f}")


def _shown(script: str) -> None:
    """As in a notebook: the display is made five times a second, and goes nowhere."""
    from IPython.core.interactiveshell import InteractiveShell

    from ddp_helpers import view

    InteractiveShell.instance()
    launch_module = sys.modules["ddp_helpers.launch"]
    launch_module.in_notebook = lambda: True  # type: ignore[attr-defined]
    with contextlib.redirect_stdout(io.StringIO()):
        launch(script, nproc_per_node=4)
    launch_module.in_notebook = view.in_notebook  # type: ignore[attr-defined]


PARTS = {
    "launch": bench_launch,
    "parts": bench_parts,
    "failure": bench_failure,
    "memory": bench_memory,
    "throughput": bench_throughput,
    "lines": bench_lines,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--notebook-launcher", nargs=3, metavar=("SCRIPT", "RANKS", "REPEATS"), help="used by itself")
    options = parser.parse_args()
    if options.notebook_launcher:
        script, ranks, repeats = options.notebook_launcher
        for number in range(int(repeats) + 1):
            taken = seconds(functools.partial(run_notebook_launcher, script, int(ranks)))
            if number:
                print(taken)
        return
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} cores, "
          f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_warm(write("hello", HELLO + END), 2)
        time.sleep(5)  # the warm parent settles when it is idle (hugepages.collapse), as while a learner reads
        for name in options.only or PARTS:
            PARTS[name](options.rounds)
        os.chdir("/")


if __name__ == "__main__":
    main()
