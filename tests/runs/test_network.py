"""No run opens a door: during a run on one machine, whatever listens listens on loopback."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddp_helpers import launch
from ddp_helpers.command import reserved_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's, and so is the warm engine")

# Each rank holds what a training run holds: its store, gloo's connections, a second group. It says so, and waits.
SCRIPT = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.all_reduce(torch.ones(1), group=dist.new_group())
open(f"connected-{dist.get_rank()}", "w").close()
while not os.path.exists("seen"):
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def notebook_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "connect.py").write_text(SCRIPT, encoding="utf-8")
    yield tmp_path


def listeners(process: psutil.Process) -> list[tuple[str, int]]:
    open_ones = process.net_connections("inet")  # IPv4 and IPv6
    return [tuple(c.laddr) for c in open_ones if c.status == psutil.CONN_LISTEN or c.type == socket.SOCK_DGRAM]


def listeners_during(ranks: int, **options: Any) -> list[tuple[str, int]]:
    """Run connect.py; the addresses that its agents, ranks and warm parent listen on while all ranks are connected."""
    seen: list[tuple[str, int]] = []

    def look() -> None:
        while not all(Path(f"connected-{rank}").exists() for rank in range(ranks)) and not ended.wait(0.01):
            pass
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # the run has failed, and launch() says why
                seen.extend(listeners(process))
        Path("seen").touch()

    ended = threading.Event()
    looking = threading.Thread(target=look)
    looking.start()
    try:
        launch("scripts/connect.py", timeout=60, **options)
    finally:
        ended.set()
        looking.join()
    return seen


def is_loopback(address: str) -> bool:
    ip = ip_address(address)
    return ip.is_loopback or bool(getattr(ip, "ipv4_mapped", None) and ip.ipv4_mapped.is_loopback)  # type: ignore[union-attr]


# Without --standalone the cold engine gets the same command.
@pytest.mark.parametrize(
    ("engine", "way"),
    [("warm", "plain"), *[(engine, way) for engine in ("warm", "cold") for way in ("standalone", "port", "nodes")]],
)
def test_a_run_listens_on_loopback_only(engine: str, way: str) -> None:
    with reserved_port(True) as port:
        pass  # free again, and as good as any
    options: dict[str, dict[str, Any]] = {
        "plain": {"nproc_per_node": 2},
        "standalone": {"nproc_per_node": 2, "torchrun_args": ["--standalone"]},
        "port": {"nproc_per_node": 2, "torchrun_args": ["--master-port", str(port)]},
        "nodes": {"nproc_per_node": 1, "nnodes": 2},
    }
    seen = listeners_during(2, engine=engine, **options[way])
    assert len(seen) >= 3, "the store's and gloo's must be among them, or this test sees nothing"
    assert [address for address in seen if not is_loopback(address[0])] == []
    if way == "port":
        assert ("127.0.0.1", port) in seen


def test_a_waiting_warm_parent_does_not_listen_at_all() -> None:
    Path("seen").touch()
    launch("scripts/connect.py", engine="warm")
    (parent,) = psutil.Process().children()
    assert listeners(parent) == []
