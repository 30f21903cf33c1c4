"""Scripts that hang, and what the notice says of each: the right ranks, the right lines, the right relation.

A letter in a comment of a script (``# A``) stands for its line; the expected sentences name lines by these letters.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from ddp_helpers import RunTimeout, hang, launch, stop
from ddp_helpers.result import RunInterrupted
from ddp_helpers.view import View

SOON, LATER = 1.2, 2.0  # s without movement until a notice: where one must come, and where none may
START = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
DDP = """
from torch import nn
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
x = torch.rand(4, 2)
"""


class Hang(NamedTuple):
    script: str
    says: str  # the first line of the notice's text, which is the relation
    ranks: int = 2


HANGS = {
    "a collective that one rank calls": Hang(
        START
        + """
dist.barrier()  # A
if rank == 0:
    dist.all_reduce(torch.ones(4))  # B
time.sleep(600)  # C
""",
        "Rank 0 waits in all_reduce #2 [4] (line B). Rank 1 has not come to it: it is at `time.sleep(600)  # C` "
        "(line C); its last collective was barrier #1 (line A). Rank 0 can go on when rank 1 comes.",
    ),
    "different collectives": Hang(
        START
        + """
dist.barrier()
if rank == 1:
    dist.all_reduce(torch.ones(4))  # A
else:
    dist.barrier()  # B
""",
        "Ranks call different collectives: as #2, ranks 0, 2 call barrier (line B), rank 1 calls all_reduce [4] "
        "(line A). All ranks must make the same calls in the same order.",
        ranks=3,
    ),
    "the same collectives in a different order, not waited for": Hang(
        START
        + """
t = torch.ones(4)
if rank == 0:
    works = [dist.all_reduce(t, async_op=True)]  # A
    works.append(dist.broadcast(t, 0, async_op=True))
else:
    works = [dist.broadcast(t, 0, async_op=True)]  # B
    works.append(dist.all_reduce(t, async_op=True))
works[1].wait()
time.sleep(600)
""",
        "Ranks call the same collectives in a different order: as #1, rank 0 calls all_reduce [4] (line A), rank 1 "
        "calls broadcast [4] (line B). All ranks must make the same calls in the same order.",
    ),
    "different shapes": Hang(
        START
        + """
chosen = torch.arange(4.0)[torch.arange(4) >= 4 * rank]
dist.all_reduce(chosen)  # A
time.sleep(600)
""",
        "Ranks call a collective with different shapes: as #1, rank 0 calls all_reduce [4] (line A), rank 1 calls "
        "all_reduce [0] (line A). All ranks must pass tensors of one size.",
    ),
    "uneven loops": Hang(
        START
        + """
for step in range(5 if rank == 0 else 3):
    dist.all_reduce(torch.ones(2, 3))  # A
time.sleep(600)  # B
""",
        "Rank 0 waits in all_reduce #4 [2, 3] (line A). Rank 1 has not come to it: it is at `time.sleep(600)  # B` "
        "(line B); its last collective was all_reduce #3 [2, 3] (line A). Rank 0 can go on when rank 1 comes.",
    ),
    "a rank that ended early": Hang(
        """
import os, sys, torch.distributed as dist
if os.environ["RANK"] == "1":
    sys.exit()
dist.init_process_group("gloo")  # A
""",
        "Rank 0 waits in init_process_group (line A). Rank 1 has not come to it: it has ended. Rank 1 will not come "
        "any more.",
    ),
    "a rank at its end, kept by a thread": Hang(
        START
        + """
import threading
threading.Thread(target=time.sleep, args=(600,)).start()
dist.barrier()  # B
if rank == 0:
    dist.barrier()  # A
""",
        "Rank 0 waits in barrier #2 (line A). Rank 1 has not come to it: it has reached the end of its script, and "
        "something (a thread, an exit handler) keeps it from ending; its last collective was barrier #1 (line B). "
        "Rank 1 will not come any more.",
    ),
    "all send first": Hang(
        START
        + """
big = torch.ones(1 << 20)
dist.send(big, (rank + 1) % 3)  # A
dist.recv(big, (rank - 1) % 3)
""",
        "Ranks 0, 1, 2 all send first, and each waits until another receives (line A): rank 0 to rank 1, rank 1 to "
        "rank 2, rank 2 to rank 0. This cannot end by itself. Let one of them receive first, or use isend().",
        ranks=3,
    ),
    "a receive from a rank that never sends": Hang(
        START
        + """
if rank == 0:
    dist.recv(torch.ones(1), src=1)  # A
dist.barrier()  # B
""",
        "Rank 1 waits in barrier #1 (line B). Rank 0 has not come to it: it is waiting in recv from rank 1 (line "
        "A). They wait for each other: this cannot end by itself.",
    ),
    "a DataLoader whose worker sleeps": Hang(
        START
        + """
from torch.utils.data import DataLoader
class Slow:
    def __len__(self): return 8
    def __getitem__(self, i):
        time.sleep(600 if rank == 1 else 0)
        return i
for batch in DataLoader(Slow(), num_workers=1):  # A
    dist.all_reduce(batch)  # B
""",
        "Rank 0 waits in all_reduce #1 [1] (line B). Rank 1 has not come to it: it is in the DataLoader, waiting "
        "for a worker process (line A). Rank 0 can go on when rank 1 comes.",
    ),
    "evaluation on rank 0 through the wrapped model": Hang(
        START
        + DDP
        + """
for step in range(2):
    model(x).sum().backward()
    if rank == 0:
        with torch.no_grad():
            model(x)  # A
    dist.barrier()  # B
""",
        "Ranks call different collectives: as #8, rank 0 calls broadcast [4] (DistributedDataParallel sends rank "
        "0's buffers before a forward) (line A), rank 1 calls barrier (line B). All ranks must make the same "
        "calls in the same order.",
    ),
    "a barrier missed by a swallowed exception": Hang(
        START
        + """
def save(step):
    if step == 1 and rank == 1:
        raise OSError("disk full")
    dist.barrier()  # A
for step in range(3):
    try:
        save(step)
    except OSError:
        pass
    dist.all_reduce(torch.ones(1))  # B
""",
        "Ranks call different collectives: as #3, rank 0 calls barrier (line A), rank 1 calls all_reduce [1] (line "
        "B). All ranks must make the same calls in the same order.",
    ),
    "a call missed by a swallowed exception, and made up for by a later one": Hang(
        START
        + """
def count(step):
    if step == 1 and rank == 1:
        raise ValueError("no label")
    dist.all_reduce(torch.ones(1))  # A
for step in range(3):
    try:
        count(step)
    except ValueError:
        pass
    dist.all_reduce(torch.ones(1))  # B
time.sleep(600)  # C
""",
        "Rank 0 waits in all_reduce #6 [1] (line B). Rank 1 has not come to it: it is at `time.sleep(600)  # C` "
        "(line C); its last collective was all_reduce #5 [1] (line B). Rank 0 can go on when rank 1 comes. (They "
        "called all_reduce #3 in different lines: rank 0 (line A), rank 1 (line B). Perhaps one left out a call "
        "before it.)",
    ),
    "a world size that is wrong": Hang(
        """
import os, torch.distributed as dist
dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=3)  # A
""",
        "Ranks 0, 1 wait in init_process_group (line A). They expect 3 ranks (world_size=3), and this run has 2.",
    ),
    "two ranks that give one number": Hang(
        """
import os, torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=2)  # A
""",
        "Ranks 0, 1 wait in init_process_group (line A). Two of them give the same number: rank 0 says rank=0, rank "
        "1 says rank=0.",
    ),
    "different roots": Hang(
        START
        + """
dist.broadcast(torch.ones(2), src=1 - rank)  # A
""",
        "Ranks 0, 1 wait in broadcast #1 [2] (line A). They differ in its root: rank 0 names rank 1, rank 1 names "
        "rank 0. All ranks must name the same one.",
    ),
    "two groups, each waiting for the other": Hang(
        START
        + """
dist.barrier()  # C
pair = dist.new_group([0, 1])
if rank == 0:
    dist.barrier(group=pair)  # A
dist.barrier()  # B
""",
        "Ranks 1, 2 wait in barrier #2 (line B). Rank 0 has not come to it: it is waiting in barrier #1 of the "
        "group of ranks 0, 1 (line A); its last collective in that group was barrier #1 (line C). They wait for "
        "each other: this cannot end by itself.",
        ranks=3,
    ),
    "a rank that never lets Python run": Hang(
        START
        + """
import ctypes
if rank == 0:
    ctypes.PyDLL(None).sleep(600)  # A
dist.barrier()  # B
""",
        "Rank 1 waits in barrier #1 (line B). Nobody can tell whether rank 0 came to it: it is busy in code that "
        "never lets Python run, at `ctypes.PyDLL(None).sleep(600)  # A` (line A). Rank 1 can go on when rank 0 "
        "comes.",
    ),
}


def script(text: str) -> str:
    path = Path("scripts/case.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(dedent(text).lstrip(), encoding="utf-8")
    return path.as_posix()


@pytest.fixture
def notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    monkeypatch.setattr(View, "say", lambda self, notice: said.append(notice))
    return said


@pytest.fixture
def stop_at_notice(notices: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Press the stop button when there is a notice, and do not wait for ranks that are blocked in gloo."""

    def say(self: View, notice: str) -> None:
        if notice.startswith("Nothing"):
            notices.append(notice)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(View, "say", say)
    monkeypatch.setattr(stop, "GRACE", 0.1)
    return notices


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_said_to_be_what_it_is(stop_at_notice: list[str], name: str) -> None:
    case = HANGS[name]
    path = script(case.script)
    with pytest.raises(RunInterrupted) as stopped:
        launch(path, nproc_per_node=case.ranks, timeout=30, notice_after=SOON)
    (notice,) = stop_at_notice
    # What the learner stopped the run for is still to be read afterwards.
    assert stopped.value._render_traceback_()[1:] == notice.splitlines()
    text = Path(path).read_text("utf-8").splitlines()
    lines = {line[-1]: str(number) for number, line in enumerate(text, 1) if re.search("  # [A-Z]$", line)}
    expected = re.sub(r"\(line ([A-Z])\)", lambda match: f"(line {lines[match[1]]})", case.says)
    assert notice.splitlines()[1] == expected


# ---- slow, and fine

DATA = """
from torch.utils.data import DataLoader
class Busy:
    def __len__(self): return 3
    def __getitem__(self, i):
        end = time.time() + 1.5
        while time.time() < end: pass
        return torch.ones(1)
for batch in DataLoader(Busy(), num_workers=1):
    dist.all_reduce(batch)
"""
COMPUTES = """
if rank == 1:
    matrix, end = torch.ones(200, 200), time.time() + 5
    while time.time() < end:
        matrix @ matrix
dist.barrier()
"""


@pytest.mark.parametrize("text", [COMPUTES, DATA], ids=["one rank computes", "DataLoader workers compute"])
def test_a_run_that_computes_gets_no_notice(notices: list[str], text: str) -> None:
    launch(script(START + text), nproc_per_node=2, timeout=60, notice_after=LATER)
    assert notices == []


def test_a_rank_that_is_merely_slow_is_not_said_to_be_stuck(notices: list[str]) -> None:
    """And the notice goes when it computes again, before it has printed anything."""
    text = """
if rank == 1:
    time.sleep(4)
    end = time.time() + 2
    while time.time() < end: pass
dist.barrier()
"""
    launch(script(START + text), nproc_per_node=2, timeout=60, notice_after=LATER)
    notice, gone = notices
    assert "Rank 1 has not come to it: it is at `time.sleep(4)`" in notice
    assert "Rank 0 can go on when rank 1 comes." in notice
    assert "cannot" not in notice and "not come any more" not in notice and "deadlock" not in notice
    assert gone == ""


SPINS = """
work = dist.all_reduce(torch.ones(2), async_op=True) if rank == 0 else None  # as NCCL waits
while rank == 0 and not work.is_completed(): pass
time.sleep(600)
"""


def test_a_rank_that_spins_while_it_waits_hides_no_hang_on_gpus(
    stop_at_notice: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = hang.Watch
    monkeypatch.setattr(hang, "Watch", lambda *args, spins: watch(*args, spins=True))
    with pytest.raises(RunInterrupted):
        launch(script(START + SPINS), nproc_per_node=2, timeout=30, notice_after=SOON)
    assert "the ranks may be stuck" in stop_at_notice[0]
    assert "Rank 0 has called all_reduce #1 [2] (line 5)." in stop_at_notice[0]


@pytest.mark.parametrize("notice_after", [SOON, 0], ids=["a rank that computes", "switched off"])
def test_there_is_no_notice_but_the_message_of_the_timeout_says_all(notices: list[str], notice_after: float) -> None:
    text = SPINS if notice_after else "dist.barrier() if rank == 0 else time.sleep(600)"
    with pytest.raises(RunTimeout, match=r"Rank 0 (waits in|has called) .* Rank 1 has not come to it: it is at `"):
        launch(script(START + text), nproc_per_node=2, timeout=3, notice_after=notice_after)
    assert [notice for notice in notices if notice.startswith("Nothing")] == []


def test_a_stopped_rank_is_told_from_one_that_never_comes(stop_at_notice: list[str]) -> None:
    text = "import os, signal\nif rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\ndist.barrier()"
    with pytest.raises(RunInterrupted):
        launch(script(START + text), nproc_per_node=2, timeout=30, notice_after=SOON)
    says = "Nobody can tell whether rank 1 came to it: it is stopped by a signal (SIGSTOP)."
    assert says in stop_at_notice[0]
