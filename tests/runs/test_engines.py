"""A fork must not show: the same scripts on both engines, and under the plain torchrun command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from ddp_helpers import LaunchError, RankFailed, Run, RunTimeout, engines, launch, warm
from ddp_helpers.command import Command
from ddp_helpers.devices import Devices
from ddp_helpers.environment import rank_environment

ENGINES = ["warm", "cold"]
PROBE = """
import atexit, builtins, gc, json, os, random, signal, sys, threading
import numpy, torch, torch.distributed as dist

def names(handler):
    return getattr(handler, "__qualname__", str(handler))

seen = {
    "argv": sys.argv, "file": __file__, "name": __name__, "spec": __spec__, "path": sys.path, "cwd": os.getcwd(),
    "main_is_ours": sys.modules["__main__"].__dict__ is globals(), "executable": sys.executable,
    "builtins": __builtins__ is builtins, "package": __package__,
    "globals": sorted(k for k in globals() if k[0] == "_"),
    "signals": {s.name: names(signal.getsignal(s)) for s in signal.Signals},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), threading.active_count()],
    "blas": len(os.listdir("/proc/self/task")) if numpy.ones((400, 400)) @ numpy.ones((400, 400)) is not None else 0,
    "streams": [[s.name, s.encoding, s.errors, s.write_through, s.line_buffering, s.fileno(), s.mode]
                for s in (sys.stdout, sys.stderr)],
    "stdin": [sys.stdin.fileno(), sys.stdin.encoding, os.read(0, 1).decode()],
    "umask": os.umask(0o22), "group_is_own": os.getpgrp() == os.getpid(), "session_is_own": os.getsid(0) == os.getpid(),
    "debug": str(dist.get_debug_level()), "gc": [gc.isenabled(), gc.get_threshold()], "trace": sys.gettrace() is None,
    "affinity": sorted(os.sched_getaffinity(0)), "hooks": [names(sys.displayhook), sys.flags.hash_randomization],
    "default_dtype": str(torch.get_default_dtype()), "grad": torch.is_grad_enabled(), "cuda": torch.cuda.is_available(),
    "cuda_was_touched_before_the_fork": getattr(torch._C, "_cuda_isInBadFork", lambda: False)(),
    "deterministic": torch.are_deterministic_algorithms_enabled(), "recursion": sys.getrecursionlimit(),
    "environment": dict(os.environ),
}
random_states = [random.random(), float(numpy.random.rand()), float(torch.rand(1)), torch.initial_seed()]
atexit.register(print, "last words", flush=True)
print("first", "words")
print("to stderr", file=sys.stderr)
"""


def script(text: str, name: str = "script") -> str:
    path = Path("scripts") / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")
    return path.as_posix()


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebooks"))
        patch.setenv("PYTHONPATH", "some/where")
        patch.setenv("RANK", "7")  # left by whoever started the kernel
        path = script(PROBE)
        options: dict[str, Any] = {"nproc_per_node": 2, "returns": ["seen", "random_states"]}
        return {e: launch(path, "--lr", "0.1", engine=e, env={"MINE": "ä"}, **options) for e in ENGINES}


def seen(run: Run, rank: int) -> dict[str, Any]:
    found = dict(run.ranks[rank].returned["seen"])
    for name in ("MASTER_PORT", "DDP_HELPERS_RUN", "TORCHELASTIC_ERROR_FILE"):
        assert found["environment"].pop(name)
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_a_warm_rank_finds_what_a_cold_one_finds(probes: dict[str, Run], rank: int) -> None:
    warm, cold = seen(probes["warm"], rank), seen(probes["cold"], rank)
    different = {key: (warm[key], cold[key]) for key in cold if warm[key] != cold[key]}
    assert not different


def test_a_rank_finds_what_the_plain_torchrun_command_gives(probes: dict[str, Run]) -> None:
    folder = probes["cold"].log_dir.parents[1]
    text = (folder / "scripts/script.py").read_text(encoding="utf-8")
    dump = "\nwith open(f'seen{os.environ[\"RANK\"]}.json', 'w') as f: json.dump(seen, f, default=str)\n"
    (folder / "scripts/script.py").write_text(text + dump, encoding="utf-8")
    environment = seen(probes["cold"], 1)["environment"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*torchrun, "scripts/script.py", "--lr", "0.1"]
    subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=True, capture_output=True)
    plain = json.loads((folder / "seen1.json").read_text(encoding="utf-8"))
    warm = json.loads(json.dumps(seen(probes["warm"], 1), default=str))
    assert {**warm.pop("environment"), **plain["environment"]} == plain.pop("environment")
    # The one thread more is the lifeline's, which waits in a system call (worker.py).
    assert warm.pop("threads") == [*plain["threads"][:2], plain.pop("threads")[2] + 1]
    assert warm.pop("blas") == plain.pop("blas") + 1
    assert warm.pop("path") == [*plain.pop("path"), str(folder)]  # the notebook's folder can be imported from
    assert warm == plain


@pytest.mark.parametrize("engine", ENGINES)
def test_the_environment_is_the_kernels_less_what_launchers_leave(probes: dict[str, Run], engine: str) -> None:
    environment = seen(probes[engine], 1)["environment"]
    assert environment["RANK"] == "1"
    assert environment["MINE"] == "ä"
    assert environment["MASTER_ADDR"] == "127.0.0.1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["PYTHONPATH"] == "some/where"
    assert not [name for name in environment if name.startswith("JPY_")]


@pytest.mark.parametrize("engine", ENGINES)
def test_cuda_is_untouched_in_what_a_rank_is_forked_from(probes: dict[str, Run], engine: str) -> None:
    for rank in probes[engine].ranks:
        assert rank.returned["seen"]["cuda_was_touched_before_the_fork"] is False


@pytest.mark.parametrize("engine", ENGINES)
def test_unseeded_ranks_draw_different_numbers(probes: dict[str, Run], engine: str) -> None:
    first, second = (rank.returned["random_states"] for rank in probes[engine].ranks)
    assert not set(first) & set(second)


@pytest.mark.parametrize("engine", ENGINES)
def test_output_goes_to_each_ranks_files_with_what_atexit_prints(probes: dict[str, Run], engine: str) -> None:
    for rank in probes[engine].ranks:
        assert rank.stdout == "first words\nlast words\n"
        assert rank.stderr == "to stderr\n"


ENDINGS = {
    "raises": ("raise ValueError('größe')", 1, "ValueError"),
    "exits with a code": ("import sys; sys.exit(5)", 5, "SystemExit"),
    "exits with a text": ("import sys; sys.exit('no data')", 1, "SystemExit"),
    "exits without a word": ("import os; os._exit(4)", 4, "exit"),
    "is killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, "SIGKILL"),
    "crashes": ("import ctypes; ctypes.string_at(0)", -11, "SIGSEGV"),
    "interrupts itself": ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
    "imports what is not there": ("import no_such_module", 1, "ModuleNotFoundError"),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_both_engines_report_the_same_end(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    statement, code, kind = ENDINGS[how]
    path = script(f"print('before')\n\ndef end():\n    {statement}\nend()\n")
    found = []
    for engine in ENGINES:
        run = launch(path, engine=engine, check=False)
        assert run.failure is not None
        assert (run.ranks[0].exit_code, run.failure.exception_type, run.exit_code) == (code, kind, 1)
        assert run.ranks[0].stdout == "before\n"
        # A crash has no exception: its line is the one that faulthandler names for the module.
        assert run.failure.line == (None if kind in ("exit", "SIGKILL") else 5 if kind == "SIGSEGV" else 4)
        found.append((run.failure.message, run.failure.traceback if kind != "SIGSEGV" else "", run.failure.frames))
    assert found[0] == found[1]


MULTIPROCESSING = """
import multiprocessing as mp, os, torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.tensor(i * i)

def child(queue): queue.put(os.getppid())

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        loader = DataLoader(Squares(), batch_size=2, num_workers=1, multiprocessing_context=method)
        print(method, [b.tolist() for b in loader])
    context = mp.get_context("forkserver")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start(); queue.get(); process.join()
    with mp.get_context("fork").Pool(2) as pool:
        print("pool", pool.map(abs, [-1, 2]))
    print("forkserver", process.exitcode)
    import pickle
    print(type(pickle.loads(pickle.dumps(Squares()))) is Squares)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_scripts_may_start_their_own_processes(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = launch(script(MULTIPROCESSING), engine=engine)
    assert run.ranks[0].stdout.splitlines() == [
        "fork [[0, 1], [4, 9]]",
        "spawn [[0, 1], [4, 9]]",
        "pool [1, 2]",
        "forkserver 0",
        "True",
    ]


def test_import_time_settings_choose_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = script("import os, torch; v = os.environ.get('TORCH_LOGS'), torch.get_num_threads()")
    assert launch(path).engine == "warm"
    assert launch(path, env={"OMP_NUM_THREADS": "3"}, returns=["v"]).ranks[0].returned["v"] == (None, 3)
    assert launch(path, env={"OMP_NUM_THREADS": "3"}).engine == "warm"
    run = launch(path, env={"TORCH_LOGS": "+dynamo"}, returns=["v"])
    assert run.engine == "cold"  # torch reads it while it is imported, so a fork could not obey
    assert run.ranks[0].returned["v"][0] == "+dynamo"


@pytest.mark.parametrize("engine", ENGINES)
def test_debug_level_and_module_runs_work(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("import sys\nprint(__name__, sys.argv[1:], sys.path[0])\n", encoding="utf-8")
    path = script("import torch.distributed as d, beside; print(d.get_debug_level())")
    run = launch(path, engine=engine, env={"TORCH_DISTRIBUTED_DEBUG": "INFO"})
    assert run.ranks[0].stdout.splitlines()[1].endswith("DebugLevel.INFO")


def test_a_rank_that_ends_early_closes_its_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fork that stays until all ranks have ended, rank 0 would wait for the timeout instead."""
    monkeypatch.chdir(tmp_path)
    path = script("""
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
    """)
    with pytest.raises(RankFailed, match=r"Connection (closed|reset) by peer") as failed:
        launch(path, nproc_per_node=2, engine="warm", timeout=30)
    assert failed.value.run.failure is not None
    assert failed.value.run.failure.rank == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_globals_come_back_also_from_a_script_that_exits_or_forks(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = script("""
        import os, sys
        who = "rank"
        if os.fork() == 0:
            who = "child"
        else:
            os.wait()
            sys.exit(0)
    """)
    assert launch(path, engine=engine, returns=["who"]).ranks[0].returned == {"who": "rank"}


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["OMP_NUM_THREADS"] = "3"',
        "os.environ.setdefault('TORCH_DISTRIBUTED_DEBUG', 'INFO')",
        'environ["MKL_NUM_THREADS"]="1"',
    ],
)
def test_a_script_that_sets_what_imports_read_is_started_cold(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert engines.choose("auto", Command(script(line)), {}) == "cold"
    with pytest.raises(LaunchError, match="the script sets"):
        engines.choose("warm", Command(script(line)), {})


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["OMP_NUM_THREADS"] == "3"',
        'print(os.environ["OMP_NUM_THREADS"])',
        'os.environ["CUDA_VISIBLE_DEVICES"] = ""',
        'os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)',
        'os.environ.setdefault("TORCH_DIST_INIT_BARRIER", "1")',
    ],
)
def test_a_script_that_reads_or_sets_other_things_is_started_warm(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = rank_environment(Devices("cpu", "gloo", ""), 1, {}, os.environ)  # as the warm parent, if there is one, has
    assert engines.choose("auto", Command(script(line)), env) == "warm"


def test_the_timeout_counts_from_the_first_ranks_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold start alone takes longer than this."""
    monkeypatch.chdir(tmp_path)
    assert launch(script("print('here')"), engine="cold", timeout=1.5).ranks[0].stdout == "here\n"
    with pytest.raises(RunTimeout):
        launch(script("import time\ntime.sleep(60)"), engine="cold", timeout=1.5)


def test_a_child_that_ends_while_an_error_is_recorded_does_not_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's DataLoader has SIGCHLD raise when a worker was killed: it did so a second time, in our own code."""
    monkeypatch.chdir(tmp_path)
    text = """
        import os, signal, time

        def child_ended(*_):
            raise RuntimeError("a worker was killed")

        class First(Exception):
            def __str__(self):
                if os.fork() == 0:
                    os._exit(0)
                time.sleep(0.5)
                return "the first error"

        signal.signal(signal.SIGCHLD, child_ended)
        raise First
        """
    run = launch(script(text), check=False, timeout=60)
    assert run.failure is not None
    assert (run.failure.exception_type, run.failure.message) == ("First", "the first error")


def test_a_warm_parent_that_has_ended_leaves_no_open_socket_to_its_successor() -> None:
    env = rank_environment(Devices("cpu", "gloo", ""), 1, {}, os.environ)
    ended = warm.parent(env)
    ended._process.kill()
    ended._process.wait()
    assert warm.parent(env) is not ended and ended._control.fileno() == -1
