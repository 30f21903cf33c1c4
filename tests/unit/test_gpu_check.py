"""tools/gpu_check.py where there is no GPU: its checks are kept apart, and its CSV never passes a CPU off as a GPU."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import gpu_check
import psutil
import pytest
import torch
import torchvision
from gpu_checks import isolate
from gpu_checks.catalogue import BY_NAME, CHECKS
from gpu_checks.hardware import NOT_A_GPU, Hardware
from gpu_checks.lab import FAILS, HOLDS, MEASURED, REHEARSAL, Lab, Row, read_rows
from gpu_checks.models import ViT, resnet50
from gpu_checks.nccl import without_sending
from gpu_checks.precision import until_the_search
from gpu_checks.ranks import Cell, lesson_cell
from gpu_checks.spread import spread

ROOT = Path(__file__).resolve().parents[2]
LESSON_CELLS = (
    "02_backends.py",
    "04_real.py",
    "04_scalar.py",
    "06_autocast.py",
    "06_nan.py",
    "06_speed.py",
    "06_gpu.py",
)
ROW = Row("crash", "a workload", "a setting", "1", "s", MEASURED)


def lab(tmp_path: Path, on_gpu: bool) -> Lab:
    return Lab("probe", on_gpu, 1, tmp_path, tmp_path / "probe.jsonl", tmp_path / "kept")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---- each check is kept apart


def in_a_process(tmp_path: Path, code: str, limit: float = 60) -> isolate.Ended:
    """Run `code` as a check that first finds ROW."""
    lines = tmp_path / "crash.jsonl"
    lines.write_text(json.dumps(asdict(ROW)) + "\n", encoding="utf-8")
    return isolate.run("crash", [sys.executable, "-c", code], lines, limit, os.environ)


@pytest.mark.parametrize(
    ("code", "exit_code", "note"),
    [
        ("raise ValueError('no such GPU')", "1", "ValueError: no such GPU"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", str(-signal.SIGSEGV), "it printed nothing"),
        ("print('bye'); raise SystemExit(7)", "7", "bye"),
    ],
)
def test_what_a_check_found_before_it_failed_is_kept(tmp_path: Path, code: str, exit_code: str, note: str) -> None:
    kept, error = in_a_process(tmp_path, code).rows
    assert kept == ROW
    assert (error.status, error.value, error.note) == ("error", exit_code, note)


def test_a_check_that_ends_well_adds_no_row(tmp_path: Path) -> None:
    assert in_a_process(tmp_path, "print('fine')").rows == [ROW]


def test_at_its_time_limit_a_check_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 1000 & echo $! > {pid_file}; echo waiting; wait"]
    ended = isolate.run("hang", command, tmp_path / "hang.jsonl", 5, os.environ, wanted=90)
    assert [(row.status, row.note) for row in ended.rows] == [("time limit", "stopped after 5 s of its 90: waiting")]
    left = int(pid_file.read_text(encoding="utf-8"))
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


def test_without_time_a_check_is_not_begun(tmp_path: Path) -> None:
    command = ["sh", "-c", f"touch {tmp_path}/begun"]
    (row,) = isolate.run("late", command, tmp_path / "late.jsonl", 1, os.environ).rows
    assert row.status == "skipped" and not (tmp_path / "begun").exists()


def test_half_a_line_of_a_killed_check_is_left_out(tmp_path: Path) -> None:
    lines = tmp_path / "rows.jsonl"
    lines.write_text(json.dumps(asdict(ROW)) + "\n" + json.dumps(asdict(ROW))[:20], encoding="utf-8")
    assert read_rows(lines) == [ROW]


def test_after_a_failing_check_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Hardware("2x Imagined 9000", "1.2", "9.9", 2)
    codes = {
        "doctor": "raise ValueError('broken')",
        "refusal": f"open('{{}}/refusal.jsonl', 'w').write({json.dumps(asdict(ROW))!r} + '\\n')",
        "hardware": f"open('{{}}/hardware.json', 'w').write({json.dumps(asdict(machine))!r})",
    }

    def command(job: gpu_check.Job, name: str, gpus: int = 0) -> list[str]:
        return [sys.executable, "-c", codes[name].replace("{}", str(job.folder))]

    monkeypatch.setattr(gpu_check.Job, "_command", command)
    out = tmp_path / "results" / "out.csv"
    assert gpu_check.main(["--only", "doctor", "refusal", "--out", str(out)]) == 1
    rows = read_csv(out)
    assert [(row["check"], row["status"]) for row in rows] == [("doctor", "error"), ("crash", "measured")]
    assert {row["hardware"] for row in rows} == {"2x Imagined 9000"}
    assert "ValueError: broken" in capsys.readouterr().out


# ---- the rows


def test_in_a_rehearsal_no_row_counts(tmp_path: Path) -> None:
    rehearsed = lab(tmp_path, on_gpu=False)
    rehearsed.measured("w", "s", 1.0, "s")
    rehearsed.claim("06.2", "holds", True)
    rehearsed.claim("06.2", "does not", False)
    assert [row.status for row in read_rows(rehearsed.lines)] == [REHEARSAL] * 3


def test_on_a_gpu_a_row_says_whether_the_claim_holds(tmp_path: Path) -> None:
    real = lab(tmp_path, on_gpu=True)
    real.claim("06.2", "holds", True)
    real.claim("06.2", "does not", False, "since …")
    real.measured("w", "s", spread([1.0, 2.0, 3.0, 4.0, 5.0]), "s", "a note")
    yes, no, time = read_rows(real.lines)
    assert (yes.status, yes.value, no.status, no.value, no.note) == (HOLDS, "1", FAILS, "0", "since …")
    assert (time.status, time.value, time.note) == (MEASURED, "3", "median of 5; a note")
    assert 1 <= float(time.low) < 3 < float(time.high) <= 5


def test_a_rate_turns_low_and_high_round() -> None:
    rate = spread([1.0, 2.0, 4.0]).rate(8)
    assert rate.median == 4 and rate.low < rate.median < rate.high


def test_the_csv_begins_with_the_columns_of_the_published_figures(tmp_path: Path) -> None:
    with (ROOT / "data" / "published_figures.csv").open(encoding="utf-8") as file:
        published = next(csv.reader(file))
    gpu_check.write_csv(tmp_path / "out.csv", [ROW], Hardware("a GPU", "1", "2", 1))
    header = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert header[: len(published)] == ["check" if name == "topic" else name for name in published]


# ---- what is checked is what learners run


@pytest.mark.parametrize("script", LESSON_CELLS)
def test_the_cells_of_the_lessons_are_found(script: str) -> None:
    cell = lesson_cell(script)
    compile(cell.text, script, "exec")
    learner = next((ROOT / "notebooks").glob(f"{script[:2]}_*.ipynb"))
    sources = ["".join(c["source"]) for c in json.loads(learner.read_text(encoding="utf-8"))["cells"]]
    assert any(f"scripts/{script}\n{cell.text}".strip() in source for source in sources)
    assert all(name in cell.text for name in cell.returns)


def test_a_cell_that_is_gone_is_named() -> None:
    with pytest.raises(LookupError, match=r"scripts/06_gone\.py"):
        lesson_cell("06_gone.py")


def test_of_the_loss_written_by_hand_only_the_training_runs() -> None:
    cell = until_the_search(lesson_cell("06_nan.py"), "cuda")
    compile(cell.text, "cell", "exec")
    assert 'GradScaler("cuda")' in cell.text and "scaler.update()" in cell.text
    assert "detect_anomaly" not in cell.text and '"cpu"' not in cell.text
    with pytest.raises(LookupError, match="no longer"):
        until_the_search(Cell("06_nan.py", "print(1)\n", ()), "cuda")


def test_a_single_rank_sends_nothing() -> None:
    cell = without_sending(lesson_cell("02_backends.py"))
    compile(cell.text, "cell", "exec")
    assert "recv" not in cell.text and '"all_to_all"' in cell.text
    with pytest.raises(LookupError, match="no longer"):
        without_sending(cell)


def test_every_check_has_its_function() -> None:
    for check in CHECKS:
        module = (ROOT / "tools" / "gpu_checks" / f"{check.module}.py").read_text(encoding="utf-8")
        assert f"def {check.function}(lab: Lab) -> None:" in module
    assert len(BY_NAME) == len(CHECKS)


# ---- the networks are those whose names they have


def test_resnet50_computes_what_torchvisions_does() -> None:
    torch.manual_seed(0)
    theirs, ours = torchvision.models.resnet50().eval(), resnet50().eval()
    assert sum(p.numel() for p in ours.parameters()) == 25_557_032
    values = theirs.state_dict().values()
    ours.load_state_dict(dict(zip(ours.state_dict(), values, strict=True)))
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(image), theirs(image))


def test_the_vit_has_the_parameters_of_torchvisions() -> None:
    with torch.device("meta"):
        theirs, ours = torchvision.models.vit_b_16(), ViT()
    shapes = [Counter(tuple(p.shape) for p in model.parameters()) for model in (theirs, ours)]
    assert shapes[0] == shapes[1] and sum(p.numel() for p in ours.parameters()) == 86_567_656


# ---- the whole


def test_a_rehearsal_says_that_it_is_none_of_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert gpu_check.main(["--cpu", "--only", "one_rank", "--out", str(out)]) == 0
    rows = read_csv(out)
    assert {row["check"] for row in rows} == {"one_rank"}
    assert all(row["hardware"].startswith(NOT_A_GPU) and row["status"] == REHEARSAL for row in rows)
    assert all(row["torch"] == torch.__version__ for row in rows)


def test_without_a_gpu_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_check.main(["--out", str(tmp_path / "out.csv")]) == 2
    assert "--cpu" in capsys.readouterr().err and not (tmp_path / "out.csv").exists()
