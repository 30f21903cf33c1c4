"""What `cluster.commands` says, typed in two terminals of one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from ddp_helpers.cluster import commands
from ddp_helpers.command import reserved_port

SCRIPT = r"""
    import os
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    # One write a line: two ranks share the terminal, and unbuffered Python writes each argument of print() by itself.
    print(f"{os.environ['MASTER_ADDR']} {total.item()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.cluster
def test_the_commands_for_two_terminals_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hello.py").write_text(dedent(SCRIPT), encoding="utf-8")
    with reserved_port(True) as port:
        pass  # free again, and as good as any
    lines = commands("hello.py", nnodes=2, nproc_per_node=2, endpoint=f"127.0.0.1:{port}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    # The one that must wait for the other comes first.
    terminals = [
        subprocess.Popen(line, shell=True, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in reversed(lines)
    ]
    try:
        said = [terminal.communicate(timeout=100)[0] for terminal in terminals]
    finally:
        for terminal in terminals:
            terminal.kill()
            terminal.wait()
    assert [terminal.returncode for terminal in terminals] == [0, 0], said
    assert said == ["127.0.0.1 4.0\n" * 2] * 2
