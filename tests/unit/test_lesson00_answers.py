"""The exercises of lesson 00: the right answer passes, and each typical wrong one gets its own hint."""

import pytest

from ddp_helpers.doctor import doctor
from ddp_helpers.exercises.lesson00 import CHECKS, NOT_YET, judge_first_fix, judge_gpus

RIGHT = {
    "00.1": ["nothing", "Nothing", " none "],
    "00.2": ["shared memory", "Shared memory", "shared_memory", "/dev/shm", "shm"],
    "00.3": ["0,2", "2,0", " 0, 2 "],
}

WRONG = {
    "00.1": {
        "NCCL": "is a note, not a fault: A version does not prove that NCCL works",
        "links": 'The line "links" is ✔: 28 pairs: NV18',
        "threads": 'The line "threads" is ✔: OMP_NUM_THREADS is not set',
        "shared memory": 'The line "shared memory" is ✔: /dev/shm has 1004 GiB free',
        "everything": "There is no line 'everything' in this report",
    },
    "00.2": {
        "nothing": 'the line "shared memory" is a problem. /dev/shm has 64 MiB free of 64 MiB',
        "GPU memory": 'The line "GPU memory" is ✔: all but free on every GPU',
        "NCCL": 'The line "NCCL" is a note',
        "memory": 'The line "memory" is ✔: 940 GiB free',
        "num_workers": "There is no line 'num_workers' in this report",
    },
    "00.3": {
        "0,1,2": "GPU 1 (NVIDIA GeForce RTX 3090 Ti) is of another model",
        "0": "GPU 2 is of the same model, and you leave it idle",
        "1": "the machine has more GPUs of another: 2 × NVIDIA GeForce RTX 5090",
        "": "An empty value hides every GPU",
        "0,3": "CUDA stops reading at an entry that is no GPU, here '3'",
        "0,0": "One GPU is named twice",
        "cuda:0": "CUDA stops reading at an entry that is no GPU, here 'cuda:0'",
    },
}


@pytest.mark.parametrize(
    ("exercise", "answer"), [(key, answer) for key, answers in RIGHT.items() for answer in answers]
)
def test_a_right_answer_passes(exercise: str, answer: str) -> None:
    assert CHECKS[exercise](answer) is None


@pytest.mark.parametrize(
    ("exercise", "answer"), [(key, answer) for key, answers in WRONG.items() for answer in answers]
)
def test_a_wrong_answer_gets_the_hint_for_that_mistake(exercise: str, answer: str) -> None:
    hint = CHECKS[exercise](answer)
    assert hint is not None
    assert WRONG[exercise][answer] in hint


@pytest.mark.parametrize("exercise", CHECKS)
def test_the_hints_of_one_exercise_differ(exercise: str) -> None:
    hints = [CHECKS[exercise](answer) for answer in WRONG[exercise]]
    assert len(hints) >= 4
    assert len(set(hints)) == len(hints)


@pytest.mark.parametrize("exercise", CHECKS)
@pytest.mark.parametrize("answer", [..., None, "...", "…", "?"])
def test_an_unattempted_exercise_says_so(exercise: str, answer: object) -> None:
    assert CHECKS[exercise](answer) == NOT_YET


@pytest.mark.parametrize("exercise", CHECKS)
@pytest.mark.parametrize("answer", [3, 2.5, [0, 2], {"GPUs": 1}, b"0,2"])
def test_an_answer_of_the_wrong_kind_gets_a_hint_and_no_traceback(exercise: str, answer: object) -> None:
    hint = CHECKS[exercise](answer)
    assert hint is not None
    assert repr(answer) in hint


def test_the_verdict_follows_the_machine_and_not_a_stored_answer() -> None:
    healthy, container = doctor("8-gpu-server"), doctor("container-64mb-shm")
    assert judge_first_fix(healthy, "shared memory") is not None
    assert judge_first_fix(container, "shared memory") is None
    assert judge_gpus(doctor("container-64mb-shm"), "0,1,2,3") is None
    assert judge_gpus(doctor("mixed-gpus"), "0,1,2,3") is not None


def test_a_warning_is_not_the_first_thing_when_there_is_a_problem() -> None:
    from dataclasses import replace

    from ddp_helpers.doctor import examine

    worse = examine(replace(doctor("mixed-gpus").machine, shm_total=64 * 2**20, shm_free=64 * 2**20))
    hint = judge_first_fix(worse, "GPUs")
    assert hint is not None
    assert "something worse. Mend this first: shared memory." in hint
    assert judge_first_fix(worse, "shared memory") is None
