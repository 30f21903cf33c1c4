"""The cell of lesson 12 that hands a job in, with a real Slurm: not as it stands, but when told to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build_notebooks import ROOT, Lesson, read_source

from ddp_helpers.cluster import sbatch

if TYPE_CHECKING:
    from conftest import Slurm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ASKED = "submit = False\n"


@pytest.fixture
def cell(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cell, in a folder where the script of exercise 12.1 lies, and with this Slurm as the machine's."""
    folder = tmp_path / "notebooks"
    for needed in (folder / "scripts", folder / "runs", tmp_path / "data"):
        needed.mkdir(parents=True)
    shutil.copy(ROOT / "data" / "digits.npz", tmp_path / "data")
    cells = [one.source for one in read_source(Lesson("12_beyond_one_machine")).cells]
    (script,) = (one for one in cells if one.startswith("%%torchrun") and "scripts/12_job.py\n" in one)
    (folder / "scripts" / "12_job.py").write_text(script.split("\n", 1)[1], encoding="utf-8")
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name not in slurm.env]:
        monkeypatch.delenv(name)
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # both nodes are this machine
    (found,) = (one for one in cells if one.startswith(ASKED))
    return found


def run(cell: str) -> None:
    exec(cell, {"Path": Path, "sbatch": sbatch, "subprocess": subprocess, "sys": sys, "time": time})


def test_run_all_submits_nothing_even_where_a_slurm_answers(cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(cell)
    assert "Nothing was submitted." in capsys.readouterr().out
    assert not list(Path().glob("*.log")) and not Path("runs/12_real_job.sh").exists()


def test_on_demand_the_job_runs_on_two_nodes(cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(cell.replace(ASKED, "submit = True\n"))
    log = capsys.readouterr().out
    for rank, (samples, local) in enumerate([(450, 0), (449, 1), (449, 0), (449, 1)]):
        assert f"[rank{rank}]: path.exists()=True, {samples} samples, GPU {local}" in log
    assert all(Path("runs", f"12_node{node}", "digits.npz").is_file() for node in (0, 1))
    assert Path("runs/12_checkpoint.pt").is_file()
