"""From logs to causes: prefixes, mixed and cut logs, victims, and logs that do not hold the cause."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_helpers.faults import Explanation, explain
from ddp_helpers.faults.lines import SMALL
from ddp_helpers.faults.stopped import explain_stopped

LOGS = Path(__file__).parent / "logs"
INDEX = list(csv.DictReader((LOGS / "index.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t"))
GONE = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:18336. "
    "This is typically caused by a remote worker crashing."
)
LATE = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation"
LATE += " to complete"
TABLE = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-01_10:00:01
  host      : node-0
  rank      : {other} (local_rank: {other})
  exitcode  : {other_code} (pid: 102)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_10:00:00
  host      : node-0
  rank      : {root} (local_rank: {root})
  exitcode  : {code} (pid: 101)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def table(root: int, code: int, other: int, other_code: int) -> str:
    return TABLE.format(root=root, code=code, other=other, other_code=other_code)


def traceback(error: str, prefix: str = "", line: int = 10, within: str = "") -> str:
    inner = [f'  File "/env/lib/python3.11/site-packages/{within}", line 9, in inner'] if within else []
    rows = ["Traceback (most recent call last):", f'  File "/home/user/train.py", line {line}, in step', "    work()"]
    return "".join(f"{prefix}{row}\n" for row in [*rows, *inner, *error.split("\n")])


def ids(explanation: Explanation) -> list[str]:
    return [fault.id for fault in explanation.faults]


@pytest.mark.parametrize("row", INDEX, ids=[row["file"] for row in INDEX])
def test_public_reports(row: dict[str, str]) -> None:
    explanation = explain(LOGS / row["file"])
    assert ids(explanation)[:1] == ([row["fault"]] if row["fault"] else [])
    assert explanation.root_rank == (int(row["rank"]) if row["rank"] else None)
    assert explanation.known == bool(row["fault"])


# One line is all that people paste into a search: what failures that any CPU can show say, without a traceback.
QUOTED = [
    ("name: EADDRINUSE, message: address already in use", "port-taken"),
    ("environment variable WORLD_SIZE expected, but not set", "env-missing"),
    ("trying to initialize the default process group twice!", "init-twice"),
    ("Default process group has not been initialized, please make sure to call init_process_group.", "no-init"),
    ("Timed out after 5 seconds waiting for clients. 2/3 clients joined.", "world-size-too-large"),
    ("wait timeout after 4000ms, keys: /default_pg/0//cpu//0/0", "world-size-too-large"),
    ("The client socket has timed out after 4000ms while trying to connect to (127.0.0.1, 41001).", "no-rank-zero"),
    ("Timed out waiting 4000ms for recv operation to complete", "collective-on-one-rank"),
    ("Application timeout caused pair closure", "collective-on-one-rank"),
    ("[enforce fail at gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 24 vs 16", "shape-mismatch"),
    ("Detected mismatch between collectives on ranks. Rank 0 is running collective: C(", "mismatch-detail"),
    ("Expected to have finished reduction in the prior iteration before starting a new one.", "unused-parameters"),
    ("sizes [5, 4] appears not to match sizes of the same param in process 0.", "models-differ"),
    ("DDP expects same model across all ranks, but Rank 0 has 2 params, while", "layer-on-one-rank"),
    ('Unexpected key(s) in state_dict: "module.weight", "module.bias".', "module-prefix"),
    ('Missing key(s) in state_dict: "module.weight", "module.bias".', "plain-keys-into-wrapper"),
    ("Expected to mark a variable ready only once.", "reentrant-checkpointing"),
    (
        "one of the variables needed for gradient computation has been modified by an inplace operation",
        "buffer-changed-in-place",
    ),
    ("SyncBatchNorm layers only work with GPU modules", "syncbatchnorm-on-cpu"),
    ("ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "nccl-without-gpu"),
    ("DistributedDataParallel device_ids and output_device arguments only work with", "device-ids-on-cpu"),
    ("exitcode  : -9 (pid: 4711)", "exit-code-9"),
    ("sampler option is mutually exclusive with shuffle", "shuffle-with-sampler"),
    ("Weights only load failed. This file can still be loaded", "weights-only"),
    ("Unsupported global: GLOBAL argparse.Namespace was not an allowed global by default.", "weights-only"),
    ("Can't pickle <function <lambda> at 0x7f2a>: attribute lookup <lambda> on __main__ failed", "spawn-from-notebook"),
    ("Can't get attribute 'f' on <module '__main__' (built-in)>", "spawn-from-notebook"),
    ("An attempt has been made to start a new process before the", "no-main-guard"),
    ("Expected timeout argument to be of type datetime.timedelta, got 30", "timeout-not-timedelta"),
]


@pytest.mark.parametrize(("line", "fault"), QUOTED)
@pytest.mark.parametrize("prefix", ["", "RuntimeError: ", "[rank1]: RuntimeError: "])
def test_one_pasted_line_is_enough(line: str, fault: str, prefix: str) -> None:
    explanation = explain(f"{prefix}{line}\n")
    assert ids(explanation)[:1] == [fault] and explanation.known


PREFIXES = ["[rank3]: ", "[rank 3] ", "[default3]:", "[trainer0|3]:", "[3]:", "[1,3]<stderr>:", "[rank: 3] "]
PREFIXES += ["3: [rank3]: ", "node-1: [rank3]:", "2026-01-01T10:00:00.123456Z [rank3]: "]
PREFIXES += ["(train pid=4711) [rank3]:", "\x1b[36m[rank3]:\x1b[0m "]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_names_the_rank(prefix: str) -> None:
    explanation = explain(traceback("KeyError: 'label'", prefix))
    assert (explanation.root_rank, explanation.exception) == (3, "KeyError: 'label'")
    assert explanation.place == "line 10 of /home/user/train.py, in step"
    assert ids(explanation) == ["rank-raises"] and explanation.known


def test_labels_of_srun_name_the_rank() -> None:
    log = "0: hello\n" * 5 + traceback("KeyError: 'label'", "2: ") + traceback(GONE, "0: ")
    explanation = explain(log)
    assert (explanation.root_rank, explanation.victims) == (2, (0,))


def test_a_label_is_no_rank_when_few_lines_have_one() -> None:
    explanation = explain("hello\n" * 50 + "3: a list item\n" + traceback("KeyError: 'label'"))
    assert explanation.root_rank is None and explanation.exception == "KeyError: 'label'"


def test_eight_ranks_mixed_line_by_line() -> None:
    logs = [traceback(GONE, f"[rank{rank}]: ").splitlines() for rank in range(8)]
    logs[5] = traceback("ValueError: bad label 17", "[rank5]: ", 44).splitlines()
    mixed = "\n".join(line for lines in zip(*logs, strict=True) for line in lines) + "\n"
    explanation = explain(mixed)
    assert explanation.headline == "rank 5 failed first: ValueError: bad label 17"
    assert explanation.victims == (0, 1, 2, 3, 4, 6, 7)
    assert "line 44" in explanation.place


def test_a_message_behind_a_progress_bar() -> None:
    log = "\x1b[32m 12%|#4 | 29/251\x1b[0m\r 13%|#5 | 30/251\rTraceback (most recent call last):\n"
    log += '  File "train.py", line 3, in <module>\nZeroDivisionError: division by zero\n'
    assert explain(log).exception == "ZeroDivisionError: division by zero"


def test_a_log_that_begins_in_the_middle_of_a_traceback() -> None:
    cut = traceback("KeyError: 'label'", "[rank1]: ").split("\n", 1)[1]
    explanation = explain(cut)
    assert (explanation.root_rank, explanation.exception) == (1, "KeyError: 'label'")
    assert "line 10" in explanation.place


def test_a_log_that_ends_before_the_cause() -> None:
    explanation = explain(
        traceback(GONE, "[rank0]: ") + '[rank1]: Traceback (most recent call last):\n[rank1]:   File "'
    )
    assert not explanation.known
    assert explanation.victims == (0,) and "hold" in explanation.missing + explanation.headline


def test_the_table_alone_is_not_enough() -> None:
    explanation = explain(table(root=0, code=1, other=1, other_code=1))
    assert not explanation.known and explanation.faults == ()
    assert "first traceback of rank 0" in explanation.missing


def test_the_table_can_name_a_rank_that_only_lost_its_peer() -> None:
    log = traceback(GONE, "[rank0]: ") + traceback("KeyError: 'label'", "[rank1]: ")
    explanation = explain(log + table(root=0, code=1, other=1, other_code=1))
    assert (explanation.root_rank, explanation.victims) == (1, (0,))


def test_the_table_decides_between_two_exceptions() -> None:
    log = traceback("ValueError: a", "[rank0]: ") + traceback("KeyError: 'b'", "[rank1]: ")
    assert explain(log + table(root=1, code=1, other=0, other_code=1)).root_rank == 1


def test_the_table_names_the_rank_of_a_traceback_without_prefix() -> None:
    log = traceback("KeyError: 'label'") + table(root=3, code=1, other=1, other_code=-15)
    explanation = explain(log)
    assert (explanation.root_rank, explanation.victims) == (3, (1,))


def test_an_exception_stands_above_an_abort_at_exit() -> None:
    log = traceback("KeyError: 'label'", "[rank1]: ") + "terminate called without an active exception\n"
    explanation = explain(log + table(root=1, code=-6, other=0, other_code=-15))
    assert (explanation.root_rank, ids(explanation)[0]) == (1, "rank-raises")


def test_a_rank_that_was_killed_is_the_cause_of_lost_connections() -> None:
    log = traceback(GONE, "[rank0]: ") + table(root=0, code=1, other=1, other_code=-9)
    explanation = explain(log)
    assert (explanation.root_rank, ids(explanation), explanation.victims) == (1, ["exit-code-9"], (0,))


def test_an_exception_comes_before_the_watchdog_of_the_others() -> None:
    watchdog = "[rank{0}]:[E826 ProcessGroupNCCL.cpp:683] [Rank {0}] Watchdog caught collective operation timeout: "
    watchdog += "WorkNCCL(SeqNum=9120, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600014 milliseconds\n"
    log = watchdog.format(0) + watchdog.format(2) + traceback("KeyError: 'label'", "[rank1]: ")
    explanation = explain(log)
    assert (explanation.root_rank, explanation.victims) == (1, (0, 2))


def nccl(rank: int, number: int, kind: str, size: int) -> str:
    return (
        f"[rank{rank}]:[E826 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran\n"
    )


def test_ranks_in_different_nccl_collectives() -> None:
    assert ids(explain(nccl(0, 7, "ALLREDUCE", 100) + nccl(1, 7, "BROADCAST", 1)))[0] == "nccl-ranks-differ"


GUESSES = (
    "[rank{0}]:[W ProcessGroupNCCL.cpp:4715] [PG ID 0 PG GUID 0 Rank {0}]  using GPU {0} as device used by this "
    "process is currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect.\n"
)


def test_all_ranks_in_the_first_nccl_collective() -> None:
    log = nccl(0, 1, "ALLREDUCE", 1) + nccl(1, 1, "ALLREDUCE", 1)
    assert ids(explain(log))[0] == "nccl-p2p-hang"
    assert ids(explain(GUESSES.format(0) + log))[0] == "nccl-barrier-device"
    some = nccl(0, 1, "ALLREDUCE", 1) + nccl(2, 1, "ALLREDUCE", 1)
    assert ids(explain(some))[0] == ids(explain(GUESSES.format(0) + some))[0] == "nccl-watchdog-timeout"


def test_the_rank_that_is_behind() -> None:
    log = nccl(0, 1582, "ALLREDUCE", 1) + nccl(1, 1580, "ALLREDUCE", 1) + nccl(2, 1582, "ALLREDUCE", 1)
    explanation = explain(log)
    assert (ids(explanation)[0], explanation.root_rank) == ("nccl-watchdog-timeout", 1)


def test_the_rank_that_did_not_come() -> None:
    log = "[rank1]: epoch=1\n" + traceback(LATE, "[rank0]: ") + traceback(LATE, "[rank2]: ")
    explanation = explain(log)
    assert (ids(explanation), explanation.root_rank) == (["collective-on-one-rank"], 1)
    assert "rank 1 did not come" in explanation.headline


def test_what_ranks_say_after_they_were_stopped_is_no_cause() -> None:
    log = "W0101 torch/distributed/elastic/agent/server/api.py:741] Received 15 death signal, shutting down workers\n"
    explanation = explain(log + traceback(GONE, "[rank0]: ") + table(root=1, code=-15, other=0, other_code=1))
    assert (ids(explanation), explanation.root_rank) == (["terminated-from-outside"], None)


def test_of_chained_exceptions_the_last_is_shown() -> None:
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    log = traceback("KeyError: 'label'") + chain + traceback("ConfigError: no such column", line=20)
    assert explain(log).exception == "ConfigError: no such column"


def test_an_error_in_a_worker_is_shown_with_its_own_line() -> None:
    outer = traceback("KeyError: Caught KeyError in DataLoader worker process 0.", "[rank2]: ", 50)
    inner = traceback("KeyError: 'label'", "[rank2]: ", 12).replace("Traceback", "Original Traceback")
    explanation = explain(outer + inner)
    assert (ids(explanation)[0], explanation.root_rank) == ("worker-raises", 2)
    assert (explanation.exception, "line 12" in explanation.place) == ("KeyError: 'label'", True)


def test_an_exception_that_python_ignored_is_no_cause() -> None:
    ignored = "[rank0]: Exception ignored in: <function Loader.__del__ at 0x7f>\n" + traceback(
        "OSError: x", "[rank0]: "
    )
    assert explain(ignored + traceback("KeyError: 'label'", "[rank1]: ")).root_rank == 1


def test_spawned_processes_are_named_by_their_number() -> None:
    log = traceback("torch.multiprocessing.spawn.ProcessRaisedException: ") + "\n"
    log += "-- Process 1 terminated with the following error:\n" + traceback("KeyError: 'label'")
    assert (explain(log).root_rank, explain(log).exception) == (1, "KeyError: 'label'")


@pytest.mark.parametrize("log", ["", "\n", "hello\nepoch=1 loss=0.5\n", "[rank0]: done, 0 errors\n"])
def test_a_log_without_a_failure_says_so(log: str) -> None:
    explanation = explain(log + "\n")
    assert not explanation.known and explanation.headline == "this log shows no failure"


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(bytes(range(256)) * 10 + b"\n" + traceback("KeyError: 'label'").encode("utf-8"))
    assert explain(path).exception == "KeyError: 'label'"


def test_the_cause_is_found_in_the_middle_of_a_long_log(tmp_path: Path) -> None:
    noise = "".join(f"[rank{n % 8}]: step={n} val_error=0.1\n" for n in range(60_000))
    path = tmp_path / "job.log"
    path.write_text(noise + traceback("KeyError: 'label'", "[rank6]: ") + noise, encoding="utf-8")
    assert path.stat().st_size > 2 * SMALL
    explanation = explain(str(path))
    assert explanation.headline == "rank 6 failed: KeyError: 'label'"
    assert explanation.evidence[0].line == 60_004


def test_a_folder_of_torchruns_log_dir(tmp_path: Path) -> None:
    for rank, error in enumerate([GONE, "KeyError: 'label'"]):
        folder = tmp_path / "none_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(traceback(error), encoding="utf-8")
    assert explain(tmp_path).root_rank == 1


def test_a_missing_file_is_not_taken_for_a_log() -> None:
    with pytest.raises(FileNotFoundError):
        explain("nowhere.log")
    with pytest.raises(TypeError):
        explain(3)  # type: ignore[arg-type]


def test_it_shows_itself_as_text_and_html() -> None:
    explanation = explain(
        traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB <b>", "[rank2]: ")
    )
    text, html = repr(explanation), explanation._repr_html_()
    assert "cuda-oom (lesson 09)" in text and "Cure: " in text
    assert max(map(len, text.splitlines())) <= 220
    assert "table-layout:auto" in html  # else JupyterLab gives the first column no width
    assert "&lt;b&gt;" in html and "<b>cuda-oom</b>" in html


@pytest.mark.parametrize("from_input", [False, True])
def test_in_a_terminal(tmp_path: Path, from_input: bool) -> None:
    path = tmp_path / "job.out"
    path.write_text(traceback("KeyError: 'label'", "[rank1]: "), encoding="utf-8")
    command = [sys.executable, "-m", "ddp_helpers", "explain", "-" if from_input else str(path)]
    log = path.read_bytes() if from_input else b""
    done = subprocess.run(command, input=log, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert io.BytesIO(done.stdout).readline().startswith(b"rank 1 failed: KeyError: 'label'")


def test_tasks_of_slurm_that_ran_out_of_memory() -> None:
    log = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
    log += "srun: error: node-1: task 5: Out Of Memory\n" + traceback(GONE, "0: ") + traceback(GONE, "1: ")
    explanation = explain(log)
    assert (ids(explanation), explanation.root_rank) == (["slurm-out-of-memory"], 5)


def test_a_launcher_that_reports_exit_codes_by_command() -> None:
    log = (
        "[ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py', '--local_rank=3'] exits with return code = -9\n"
    )
    explanation = explain(log + traceback(GONE, "[rank0]: "))
    assert (ids(explanation), explanation.root_rank) == (["exit-code-9"], 3)
    assert explanation.headline == "rank 3 failed first: the process was ended by signal 9 (SIGKILL)"


def test_a_kind_of_failure_is_not_its_cause() -> None:
    error = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error, NCCL 2.21.5"
    error += "\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
    explanation = explain(traceback(error, "[rank1]: "))
    assert (ids(explanation), explanation.root_rank, explanation.known) == (["nccl-system-error"], 1, False)
    assert "NCCL_DEBUG" in explanation.missing
    named = error + "\nLast error:\nsocketStartConnect: Connect to 172.17.0.2<38563> failed : Connection refused"
    assert (ids(explain(traceback(named)))[0], explain(traceback(named)).known) == ("nccl-connection-refused", True)


def test_the_rank_that_shows_nothing_is_where_to_look() -> None:
    error = "torch.distributed.DistBackendError: remote process exited or there was a network error"
    log = "[rank2]: epoch=1\n" + "".join(traceback(error, f"[rank{rank}]: ") for rank in (0, 1, 3))
    explanation = explain(log)
    assert not explanation.known and explanation.faults == ()
    assert "Rank 2 shows no error here" in explanation.missing


def test_a_run_that_was_stopped_says_who_did_not_come() -> None:
    where = "rank 0: waiting in all_reduce #2 [2, 2] (line 14)\nrank 1: not there: it is at `time.sleep(99)` (line 18)"
    explanation = explain_stopped(where)
    assert (ids(explanation), explanation.root_rank) == (["collective-on-one-rank"], 1)
    apart = explain_stopped("rank 0: waiting in all_reduce #1 [1] (line 3)\nrank 1: waiting in barrier #1 (line 5)")
    assert (ids(apart), apart.root_rank) == (["collective-order"], None)
    alone = explain_stopped("ranks 0, 1: not there: it is at `work()` (line 3)")
    assert not alone.known and "slow or stuck by itself" in alone.missing
