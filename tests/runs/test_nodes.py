"""Two simulated nodes are one run: its ranks are numbered through, and it ends when one node has failed."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from ddp_helpers import RankFailed, RunTimeout, launch
from ddp_helpers.launch import NODE_GRACE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the warm engine and /proc are Linux's")

# They wait for nobody when one has failed: by themselves they would go on. (Nor do they meet in a collective before,
# which the failure of one could break for those that have not left it.)
SCRIPT = """
    import os, sys, time
    from pathlib import Path

    rank = os.environ["RANK"]
    print(*(os.environ[name] for name in ("GROUP_RANK", "LOCAL_RANK", "RANK")), flush=True)
    Path(f"{rank}.started").touch()
    while len(list(Path().glob("*.started"))) < 4:
        time.sleep(0.01)
    if sys.argv[1] == "raise" and rank == "3":
        raise ValueError("bad batch")
    if sys.argv[1] == "exit" and rank == "3":
        os._exit(7)
    time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def notebook_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("scripts").mkdir()
    Path("scripts/nodes.py").write_text(dedent(SCRIPT), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("how", "kind"), [("raise", "ValueError"), ("exit", "exit")])
def test_a_node_that_failed_ends_the_others_and_is_the_cause(how: str, kind: str) -> None:
    with pytest.raises(RankFailed, match="rank 3 of 4 failed") as caught:
        launch("scripts/nodes.py", how, nnodes=2, nproc_per_node=2, timeout=60 + NODE_GRACE)
    run = caught.value.run
    assert run.failure is not None
    assert (run.failure.rank, run.failure.exception_type, run.failure.finished) == (3, kind, [])
    assert run.failure.victims == [0, 1, 2]
    assert [rank.stdout for rank in run.ranks] == ["0 0 0\n", "0 1 1\n", "1 0 2\n", "1 1 3\n"]
    assert [rank.exit_code for rank in run.ranks][:2] == [None, None], "they were stopped, and neither failed nor ended"
    assert not any(psutil.pid_exists(rank.pid) for rank in run.ranks if rank.pid)


def test_both_nodes_are_stopped_at_the_timeout() -> None:
    with pytest.raises(RunTimeout, match="ranks 0, 1, 2, 3") as caught:
        launch("scripts/nodes.py", "", nnodes=2, nproc_per_node=2, timeout=2)
    assert len(caught.value.run.ranks) == 4
    assert not any(psutil.pid_exists(rank.pid) for rank in caught.value.run.ranks if rank.pid)
