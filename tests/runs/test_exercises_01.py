"""Exercises of lesson 01: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from build_notebooks import Lesson
from exercise_cells import Cells

from ddp_helpers import RunTimeout, check
from ddp_helpers.exercises import ExerciseNotPassed

LESSON = Lesson("01_who_am_i")
SCRIPTS = {"01.1": "scripts/01_once_per_node.py", "01.2": "scripts/01_my_files.py", "01.3": "scripts/01_in_and_out.py"}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
with_solution = CELLS.with_solutions
pytestmark = pytest.mark.usefixtures("notebook_folder")


OTHER_STYLES = {
    "01.1 compares text": ("01.1", 'if os.environ["LOCAL_RANK"] == "0":\n    print("I download")\n'),
    "01.1 the last of a node speaks": (
        "01.1",
        """
        last = int(os.environ["LOCAL_WORLD_SIZE"]) - 1
        if not int(os.environ["LOCAL_RANK"]) < last:
            os.write(1, b"I download\\n")
        """,
    ),
    "01.1 divides the rank": (
        "01.1",
        'print("I download") if int(os.environ["RANK"]) % int(os.environ["LOCAL_WORLD_SIZE"]) == 0 else None\n',
    ),
    "01.2 blocks of almost equal length": (
        "01.2",
        """
        each, rest = divmod(len(files), world_size)
        start = rank * each + min(rank, rest)
        mine = files[start:start + each + (rank < rest)]
        """,
    ),
    "01.2 a set, dealt from the end": (
        "01.2",
        "mine = {file for number, file in enumerate(reversed(files)) if number % world_size == rank}\n",
    ),
    "01.2 shuffled alike on all ranks": (
        "01.2",
        "import random\nrandom.Random(0).shuffle(files)\nmine = tuple(files[rank::world_size])\n",
    ),
    "01.3 a world of one when alone, left at exit": (
        "01.3",
        """
        import atexit
        from torch.distributed import destroy_process_group, init_process_group
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        os.environ.update({name: value for name, value in alone.items() if name not in os.environ})
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}")
        init_process_group(device_id=device if device.type == "cuda" else None)
        atexit.register(destroy_process_group)
        work(device)
        """,
    ),
    "01.3 a context manager and torch.accelerator": (
        "01.3",
        """
        import contextlib

        @contextlib.contextmanager
        def group():
            launched = dist.is_torchelastic_launched()
            device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
            if device.type != "cpu":
                torch.accelerator.set_device_index(int(os.getenv("LOCAL_RANK", 0)))
            if launched:
                dist.init_process_group(dist.get_default_backend_for_device(device))
            try:
                yield device
            finally:
                if launched:
                    dist.destroy_process_group()

        def main():
            with group() as device:
                work(device)

        if __name__ == "__main__":
            main()
        """,
    ),
}


@pytest.mark.parametrize(("exercise", "solution"), OTHER_STYLES.values(), ids=OTHER_STYLES)
def test_a_right_answer_in_another_style_passes(exercise: str, solution: str) -> None:
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.passed, verdict


# What is wrong, the exercise, the answer, and words that only this mistake's hint has.
ONCE_PER_NODE = {
    "rank in place of local rank": (
        'if os.environ["RANK"] == "0":\n    print("I download")\n',
        "one rank 0 in the whole world",
    ),
    "no condition": ('print("I download")\n', "all 3 ranks of the node printed: 0, 1 and 2. Who shall speak"),
    "a number compared with text": (
        'if os.environ["LOCAL_RANK"] == 0:\n    print("I download")\n',
        "text, not numbers",
    ),
    "local rank 1": (
        'if os.environ["LOCAL_RANK"] == "1":\n    print("I download")\n',
        "also on a node with a single process",
    ),
    "two processes a node written in": (
        'if int(os.environ["RANK"]) % 2 == 0:\n    print("I download")\n',
        "ranks 0 and 2 printed, and one line was asked for. Is a number",
    ),
    "two lines": ('if os.environ["LOCAL_RANK"] == "0":\n    print("I")\n    print("download")\n', "printed 2 lines"),
    "a name that is not there": ("if local_rank == 0:\n    print()\n", "NameError: name 'local_rank' is not defined"),
}
EVERY_FILE_ONCE = {
    "everything for everyone": ("mine = files\n", "every rank reads all 10 files"),
    "the rest is dropped": (
        "each = len(files) // world_size\nmine = files[rank * each:(rank + 1) * each]\n",
        "nobody reads part-9.csv. 10 = 3 × 3 + 1",
    ),
    "written for two": (
        "mine = files[rank * 5:(rank + 1) * 5]\n",
        "part-7.csv, part-8.csv and part-9.csv. Is a number",
    ),
    "local rank in place of rank": (
        'mine = files[int(os.environ["LOCAL_RANK"])::world_size]\n',
        "ranks 0 and 2 all read part-0.csv, and nobody reads part-2.csv",
    ),
    "shares overlap by one": (
        "each = -(-len(files) // world_size)\nmine = files[rank * each:(rank + 1) * each + 1]\n",
        "part-5.csv is read 2 times, by ranks 0 and 1. Where does a share end?",
    ),
    "the last one takes the rest": (
        """
        each = len(files) // world_size
        mine = files[rank * each:] if rank == world_size - 1 else files[rank * each:(rank + 1) * each]
        """,
        "rank 3 reads 4 files and rank 0 reads 2",
    ),
    "positions in place of names": ("mine = list(range(rank, len(files), world_size))\n", "rank 0 has 0 in mine"),
    "one name": ("mine = files[rank % 10]\n", "rank 0 has mine = 'part-0.csv'"),
    "nothing": ("", "mine is empty on every rank"),
}
JOIN = 'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")\n'
DEVICE = """\
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
"""
LEAVE = "finally:\n    if dist.is_initialized():\n        dist.destroy_process_group()\n"
JOIN_IF_TOLD = DEVICE + f'if "RANK" in os.environ:\n    {JOIN}'
IN_AND_OUT = {
    "joins alone too": (
        DEVICE + JOIN + "try:\n    work(device)\n" + LEAVE,
        "Ask whether they are there before you join",
    ),
    "NCCL everywhere": ('dist.init_process_group("nccl")\nwork("cuda")\n', "NCCL needs GPUs"),
    "never joins": ('work("cpu")\n', "rank 0 counted 1, not 2"),
    "never leaves": (JOIN_IF_TOLD + "work(device)\n", "still there when rank 0 ended. Who takes it down?"),
    "leaves only when all went well": (
        JOIN_IF_TOLD + "work(device)\nif dist.is_initialized():\n    dist.destroy_process_group()\n",
        "When work() raises",
    ),
    "leaves what it never joined": (
        JOIN_IF_TOLD + "try:\n    work(device)\nfinally:\n    dist.destroy_process_group()\n",
        "Ask before you leave",
    ),
    "swallows the exception": (
        JOIN_IF_TOLD + "try:\n    work(device)\nexcept Exception as error:\n    print(error)\n" + LEAVE,
        "Let the exception go on its way",
    ),
    "gloo everywhere": (
        'if "RANK" in os.environ:\n    dist.init_process_group("gloo")\ntry:\n    work("cpu")\n' + LEAVE,
        "would join with gloo",
    ),
    "joins before it chooses": (
        f'if "RANK" in os.environ:\n    {JOIN}{DEVICE}try:\n    work(device)\n{LEAVE}',
        "before it has chosen its GPU",
    ),
    "rank chooses the GPU": (
        JOIN_IF_TOLD.replace("LOCAL_RANK", "RANK") + "try:\n    work(device)\n" + LEAVE,
        "rank 2 (local rank 0) would take GPU 2",
    ),
    "asks for a local rank that a lone process has not": (
        'if torch.cuda.is_available():\n    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n'
        'if "RANK" in os.environ:\n    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")\n'
        f'try:\n    work("cuda" if torch.cuda.is_available() else "cpu")\n{LEAVE}',
        "Alone, on a machine with a GPU, the script fails: KeyError: 'LOCAL_RANK'",
    ),
    "no work": (JOIN_IF_TOLD + LEAVE.replace("finally", "if True"), "Call work(), and leave it as it is"),
}
WRONG = {
    f"{exercise} {name}": (exercise, solution, hint)
    for exercise, answers in {"01.1": ONCE_PER_NODE, "01.2": EVERY_FILE_ONCE, "01.3": IN_AND_OUT}.items()
    for name, (solution, hint) in answers.items()
}


@pytest.mark.parametrize(("exercise", "solution", "hint"), WRONG.values(), ids=WRONG)
def test_a_typical_mistake_gets_its_own_hint(exercise: str, solution: str, hint: str) -> None:
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.kind == "wrong"
    assert hint in verdict.text
    others = [other for _, other in {**ONCE_PER_NODE, **EVERY_FILE_ONCE, **IN_AND_OUT}.values() if other != hint]
    assert not [other for other in others if other in verdict.text]


def test_a_syntax_error_is_told_once_with_its_place() -> None:
    verdict = checked("01.2", with_solution("01.2", "mine = files[rank::world_size\n"))
    assert verdict.kind == "wrong" and verdict.text.count("SyntaxError") == 1 and "cell line" in verdict.text


def test_ranks_that_wait_for_ever_are_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_helpers.exercises.attempt.SECONDS", 3)
    waits = "    if dist.is_initialized() and dist.get_world_size() > 1:\n        dist.recv(torch.zeros(1))\n"
    waits = JOIN_IF_TOLD + "try:\n    work(device)\n" + waits + LEAVE
    verdict = checked("01.3", with_solution("01.3", waits))
    assert verdict.kind == "wrong"
    assert "With 2 processes, the script did not end within 3 s: Rank 0 waits in recv" in verdict.text
    assert "recv" in verdict.text and "cell line" in verdict.text


# ---- a check never passes on an old result, and tells a grader ---------------------------------------------------


def test_a_check_runs_the_script_anew_each_time() -> None:
    assert checked("01.2", with_solution("01.2", "mine = files[rank::world_size]\n")).passed
    assert not checked("01.2", with_solution("01.2", "mine = files[:1]\n")).passed


def test_a_script_that_was_never_written_is_not_attempted() -> None:
    verdict = check("01.1")
    assert verdict.kind == "unattempted" and "there is no scripts/01_once_per_node.py" in verdict.text


def test_a_cell_that_was_changed_and_saved_but_not_run_does_not_pass(
    notebook_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = with_solution("01.2", "mine = files[rank::world_size]\n")
    script = notebook_folder / SCRIPTS["01.2"]
    script.write_text(right, encoding="utf-8")

    def save(text: str, later: float) -> None:
        cell = {"cell_type": "code", "source": f"%%torchrun --nproc-per-node 4 {SCRIPTS['01.2']}\n{text}"}
        notebook = notebook_folder / "lesson.ipynb"
        notebook.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
        written = script.stat().st_mtime
        os.utime(notebook, (written + later, written + later))
        monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))

    save(with_solution("01.2", "mine = files[:1]\n"), later=5)
    verdict = check("01.2")
    assert verdict.kind == "unattempted" and "Run the cell again" in verdict.text

    save(right, later=5)
    assert check("01.2").passed

    save(with_solution("01.2", "mine = files[:1]\n"), later=-5)  # saved before the cell was run: says nothing
    assert check("01.2").passed


def test_a_check_says_when_it_was_not_the_cell_that_wrote_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    right, executed = with_solution("01.2", "mine = files[rank::world_size]\n"), [""]
    shell = SimpleNamespace(history_manager=SimpleNamespace(input_hist_raw=executed), user_ns={})
    monkeypatch.setattr("ddp_helpers.exercises.freshness._shell", lambda: shell)
    assert "as an earlier session left it" in checked("01.2", right).text

    executed.append(f"%%torchrun --nproc-per-node 4 {SCRIPTS['01.2']}\n{right}")
    assert "Checked was" not in checked("01.2", right).text
    assert "edited outside its cell" in checked("01.2", right + "print()\n").text

    path = Path(SCRIPTS["01.2"])
    path.write_text(right, encoding="utf-8")
    os.utime(path, (path.stat().st_mtime - 600,) * 2)
    assert "which its cell wrote 10 minutes ago" in check("01.2").text


def test_the_runs_of_a_check_leave_the_learners_own_runs_alone(notebook_folder: Path) -> None:
    (notebook_folder / "runs" / "0001-mine").mkdir(parents=True)
    checked("01.2", with_solution("01.2", "mine = files[rank::world_size]\n"))
    assert [path.name for path in (notebook_folder / "runs").glob("0*")] == ["0001-mine"]


def test_under_nbgrader_what_is_not_passed_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = with_solution("01.2", "mine = files[:1]\n")
    assert not checked("01.2", wrong).passed
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    with pytest.raises(ExerciseNotPassed, match="nobody reads"):
        checked("01.2", wrong)
    with pytest.raises(ExerciseNotPassed, match="Not attempted yet"):
        check("01.1")
    assert checked("01.2", with_solution("01.2", "mine = files[rank::world_size]\n")).passed


def test_strict_raises_for_anybody() -> None:
    with pytest.raises(ExerciseNotPassed, match="Not attempted yet"):
        check("01.1", strict=True)


def test_an_unknown_exercise_is_told_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no exercise '01.9'.*01.1, 01.2, 01.3"):
        check("01.9")


def test_a_script_exercise_takes_no_answer() -> None:
    with pytest.raises(TypeError, match="takes no answer"):
        check("01.1", 3)


def test_dots_in_an_answer_are_no_attempt() -> None:
    for answer in (..., "...", None, [..., 1], {"server": ...}):
        assert check("00.1", answer).kind == "unattempted"
    assert check("00.1").kind == "unattempted"


def test_a_machine_that_starts_no_rank_is_not_the_answers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_nothing(command: object, options: object) -> None:
        raise RunTimeout("stopped after 20 s.\nNo rank had started.", SimpleNamespace(ranks=[]))

    monkeypatch.setattr(sys.modules["ddp_helpers.launch"], "run", start_nothing)
    verdict = checked("01.2", with_solution("01.2", "mine = files[rank::world_size]\n"))
    assert verdict.kind == "unattempted" and "too busy" in verdict.text


def test_a_hang_inside_a_harness_names_the_cells_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_helpers.exercises.attempt.SECONDS", 3)
    text = with_solution("01.3", "work('cpu')\nimport time\ntime.sleep(60)\n")
    verdict = checked("01.3", text)
    line = text.splitlines().index("time.sleep(60)") + 2
    assert f"`time.sleep(60)` (cell line {line})" in verdict.text
