"""Exercises of lesson 12: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

from textwrap import indent

import pytest
from build_notebooks import Lesson, learner_notebook, read_source
from exercise_cells import Cells

from ddp_helpers import check
from ddp_helpers.exercises.lesson12 import fewest_micro_batches

LESSON = Lesson("12_beyond_one_machine")
SCRIPTS = {"12.1": "scripts/12_job.py", "12.2": "scripts/12_held.py"}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
pytestmark = pytest.mark.usefixtures("notebook_folder")


# ---- 12.1 -----------------------------------------------------------------------------------------------------------

FETCH = 'if os.environ["LOCAL_RANK"] == "0":\n    download(path)\ndist.barrier()\n'
SHARE = "return range(dist.get_rank(), samples, dist.get_world_size())\n"
DEVICE = 'return int(os.environ["LOCAL_RANK"])\n'
SAVE = "if dist.get_rank() == 0:\n    torch.save(state, path)\ndist.barrier()\n"


def job(fetch: str = FETCH, share: str = SHARE, device: str = DEVICE, save: str = SAVE) -> str:
    """The lesson's script with other lines in some of its four functions."""
    return CELLS.with_solutions("12.1", fetch, share, device, save)


OTHER_JOBS = {
    "the last of each node downloads, stretches, a device's name, and a message in place of a barrier": job(
        'if os.environ["LOCAL_RANK"] == str(int(os.environ["LOCAL_WORLD_SIZE"]) - 1):\n    download(path)\n'
        "dist.all_reduce(torch.ones(1))\n",
        "rank, world = dist.get_rank(), dist.get_world_size()\n"
        "return list(range(samples * rank // world, samples * (rank + 1) // world))\n",
        "return torch.device(f\"cuda:{os.environ['LOCAL_RANK']}\")\n",
        "if dist.get_rank() == dist.get_world_size() - 1:\n"
        "    with open(path, 'wb') as file:\n        torch.save(state, file)\n"
        "dist.broadcast(torch.ones(1), dist.get_world_size() - 1)\n",
    ),
    "computed from the rank": job(
        'local = dist.get_rank() % int(os.environ["LOCAL_WORLD_SIZE"])\nif not local:\n    download(path)\n'
        "dist.monitored_barrier()\n",
        "return torch.arange(samples)[dist.get_rank() :: dist.get_world_size()]\n",
        "return f\"cuda:{dist.get_rank() % int(os.environ['LOCAL_WORLD_SIZE'])}\"\n",
    ),
}

JOBS = {
    "all download": (
        job(fetch="download(path)\ndist.barrier()\n"),
        "ranks 0 and 1 download the data to node 0's disk, into one file",
    ),
    "once a job": (
        job(fetch=FETCH.replace('os.environ["LOCAL_RANK"] == "0"', "dist.get_rank() == 0")),
        "nobody downloads the data to node 1's disk",
    ),
    "a text is no number": (
        job(fetch=FETCH.replace('"0"', "0")),
        "nobody downloads the data to node 0's disk",
    ),
    "nobody waits for the download": (
        job(fetch=FETCH.replace("dist.barrier()\n", "")),
        "fetch() has returned on ranks 1 and 3 before the whole file was there",
    ),
    "they wait before the download": (
        job(fetch="dist.barrier()\n" + FETCH.replace("dist.barrier()\n", "")),
        "fetch() has returned on ranks 1 and 3 before the whole file was there",
    ),
    "they sleep in place of a barrier": (
        job(fetch=FETCH.replace("dist.barrier()", "import time\ntime.sleep(1)")),
        "fetch() has returned on ranks 1 and 3 before the whole file was there",
    ),
    "they wait for any file": (
        job(fetch=FETCH.replace("dist.barrier()", "while not path.exists():\n    pass")),
        "fetch() has returned on ranks 1 and 3 before the whole file was there",
    ),
    "downloaded to another place": (
        job(fetch=FETCH.replace("(path)", "(folder + '/data')")),
        "fetch() downloads on ranks 0 and 2, and not to the path that it returns",
    ),
    "a barrier for the first ones only": (
        job(fetch=FETCH.replace("dist.barrier()", "    dist.barrier()")),
        "That was in fetch(). A rank waits for ranks that do not come",
    ),
    "shares by local rank": (
        job(share='return range(int(os.environ["LOCAL_RANK"]), samples, int(os.environ["LOCAL_WORLD_SIZE"]))\n'),
        "share(12) gives ranks 0 and 2 the same samples",
    ),
    "what is left over": (
        job(share="n = samples // dist.get_world_size()\nreturn range(dist.get_rank() * n, dist.get_rank() * n + n)\n"),
        "share(10): nobody has [8, 9]",
    ),
    "shares filled up": (
        job(
            share="rank, world = dist.get_rank(), dist.get_world_size()\n"
            "return [n % samples for n in range(rank, -(-samples // world) * world, world)]\n"
        ),
        "share(10): some samples are dealt twice",
    ),
    "no share": (job(share="pass\n"), "share(12) returns nothing that can be gone through"),
    "the rank's GPU": (job(device="return dist.get_rank()\n"), "rank 2 takes GPU 2 of node 1"),
    "one GPU for all": (
        job(device="return dist.get_rank() % 1\n"),
        "local_device() gives rank 1, local rank 1 of node 0, GPU 0. What torchrun tells each process",
    ),
    "a GPU is taken": (
        job(device="torch.cuda.set_device(1000)\n"),
        "That was in local_device(). Only name the number, from what torchrun tells each process",
    ),
    "a text as the GPU": (job(device='return os.environ["LOCAL_RANK"]\n'), "local_device() gives '0', a text"),
    "no GPU": (job(device="pass\n"), "local_device() gives rank 0 no number"),
    "all save": (
        job(save="torch.save(state, path)\ndist.barrier()\n"),
        "all ranks save (ranks 0, 1, 2 and 3)",
    ),
    "one rank of each node saves": (
        job(save=SAVE.replace("dist.get_rank() == 0", 'os.environ["LOCAL_RANK"] == "0"')),
        "ranks 0 and 2 all save, into one file of the shared file system. Once a job",
    ),
    "nobody saves": (job(save="dist.barrier()\n"), "no rank calls torch.save"),
    "nobody waits for the writer": (
        job(save=SAVE.replace("dist.barrier()\n", "")),
        "save() has returned on ranks 1, 2 and 3 before the whole checkpoint was there",
    ),
    "they sleep while the writer saves": (
        job(save=SAVE.replace("dist.barrier()", "import time\ntime.sleep(1)")),
        "save() has returned on ranks 1, 2 and 3 before the whole checkpoint was there",
    ),
    "saved to another place": (
        job(save=SAVE.replace("state, path", "state, path + '.0'")),
        "rank 0 saves, and there is nothing at `path`",
    ),
    "nothing is saved": (
        job(save=SAVE.replace("state, path", "{}, path")),
        "the checkpoint does not hold the state that save() was given",
    ),
}


@pytest.mark.parametrize("script", OTHER_JOBS.values(), ids=OTHER_JOBS)
def test_a_job_in_another_style_passes(script: str) -> None:
    verdict = checked("12.1", script)
    assert verdict.passed, verdict


def test_a_rank_that_a_busy_machine_starts_late_fails_no_right_job() -> None:
    wait = "import threading\nthreading.Event().wait(6)\n"  # longer than a barrier waits; time.sleep would not sleep
    late = f'import os\nif os.environ["RANK"] == "3":\n{indent(wait, "    ")}'
    verdict = checked("12.1", late + job())
    assert verdict.passed, verdict


@pytest.mark.parametrize(("script", "hint"), JOBS.values(), ids=JOBS)
def test_each_mistake_of_a_job_gets_its_own_hint(script: str, hint: str) -> None:
    verdict = checked("12.1", script)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in JOBS.values() if other != hint and other in verdict.text]


# ---- 12.2 -----------------------------------------------------------------------------------------------------------


def held(parameters: str = "4 * p / f", gradients: str = "4 * p / f", optimizer: str = "8 * p / n") -> str:
    """A held() that has these three terms; f is the number of ranks under FSDP, n under ZeRO-1 too, else 1."""
    return CELLS.with_solutions(
        "12.2",
        "p, f = parameters, ranks if way == 'FSDP' else 1\nn = ranks if way != 'DDP' else 1\n"
        f"return {{'parameters': {parameters}, 'gradients': {gradients}, 'optimizer': {optimizer}}}\n",
    )


MEMORIES = {
    "numbers": (held("p / f", "p / f", "2 * p / n"), "That is a number of numbers. A float32 has 4 bytes."),
    "one number for Adam": (held(optimizer="4 * p / n"), "Adam keeps two numbers for each parameter"),
    "three numbers for Adam": (held(optimizer="12 * p / n"), "the parameters themselves are counted already"),
    "ZeRO-1 cuts the gradients": (held(gradients="4 * p / n"), "ZeRO-1 does not cut the gradients"),
    "DDP cuts the state": (held(optimizer="8 * p / ranks"), "DDP does not cut the optimizer"),
    "ZeRO-1 cuts nothing": (held(optimizer="8 * p / f"), "In ZeRO-1, who needs all of them?"),
    "FSDP does not cut the parameters": (held("4 * p"), "In FSDP, who needs all of them?"),
    "cut twice": (held(optimizer="8 * p / n / n"), "ZeRO-1 divides them among the ranks once"),
    "one half for any world": (
        held(optimizer="8 * p / min(n, 2)"),
        "by the number of ranks, and there are 3",
    ),
    "no state for Adam": (held(optimizer="0 * p"), "Adam keeps two numbers for each parameter"),
    "in GiB": (held("4 * p / f / 2**30"), "In bytes, please"),
    "in whole GiB": (held("4 * p // f // 2**30"), "In bytes, please"),
    "written for one model": (held("7e9"), "held() gets the parameters and the ranks as arguments"),
    "something else": (held(gradients="44 * p / f"), "It is 11 times what it should be"),
    "one number": (CELLS.with_solutions("12.2", "return {}\n"), "held() says no number of bytes for 'parameters'"),
}


def test_a_memory_in_integers_and_a_table_passes() -> None:
    table = "cuts = {'DDP': (1, 1, 1), 'ZeRO-1': (1, 1, ranks), 'FSDP': (ranks,) * 3}[way]\n"
    words = "names = 'parameters', 'gradients', 'optimizer'\n"
    total = "return {name: size * parameters // cut for name, size, cut in zip(names, (4, 4, 8), cuts)}\n"
    verdict = checked("12.2", CELLS.with_solutions("12.2", table + words + total))
    assert verdict.passed, verdict
    assert checked("12.2", held()).passed, "the terms of the wrong answers are right where nothing is changed"


@pytest.mark.parametrize(("script", "hint"), MEMORIES.values(), ids=MEMORIES)
def test_each_mistake_of_a_memory_gets_its_own_hint(script: str, hint: str) -> None:
    verdict = checked("12.2", script)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in MEMORIES.values() if other != hint and other in verdict.text]


# ---- 12.3 -----------------------------------------------------------------------------------------------------------


def answer(micros: object = 27, gpipe: object = 27, turns: object = 4) -> dict[str, object]:
    return {"micro-batches": micros, "held by GPipe": gpipe, "held by 1F1B": turns}


BUBBLES = {
    "waiting to work": (answer(30, 30), "That compares the waiting with the work"),
    "too few": (answer(26, 26), "More micro-batches make the bubble smaller"),
    "p for p - 1": (answer(37, 37), "how many pieces does the last stage wait for before its first"),
    "p for p - 1, twice": (answer(36, 36), "how many pieces does the last stage wait for before its first"),
    "far too many": (answer(100, 100), "With 100 micro-batches, 2.9 % of the time is waiting. Fewer would do."),
    "GPipe as 1F1B": (answer(gpipe=4), "When does its first backward come: after how many forwards?"),
    "1F1B as GPipe": (answer(turns=27), "That is GPipe's. When does 1F1B's first backward come?"),
    "the last stage": (answer(turns=1), "That is the last stage"),
    "one less": (answer(turns=3), "The picture has three stages"),
    "no whole number": (answer(26.5), "micro-batches: a whole number of micro-batches; yours is 26.5"),
    "no dict": (27, "a dict with three numbers"),
}


@pytest.mark.parametrize(("wrong", "hint"), BUBBLES.values(), ids=BUBBLES)
def test_each_wrong_bubble_gets_its_own_hint(wrong: object, hint: str) -> None:
    verdict = check("12.3", wrong)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in BUBBLES.values() if other != hint and other in verdict.text]


@pytest.mark.parametrize("number", [int, float])
def test_the_right_numbers_pass(number: type) -> None:
    assert check("12.3", answer(number(27), number(27), number(4))).passed


def test_the_fewest_micro_batches_found_by_laying_out_are_those_of_the_formula() -> None:
    for stages, at_most in ((2, 0.2), (3, 0.25), (4, 0.1)):
        micros = fewest_micro_batches(stages, at_most)
        assert (stages - 1) / (micros + stages - 1) <= at_most + 1e-12 < (stages - 1) / (micros + stages - 2)


def test_the_lessons_own_numbers_pass_and_its_stub_is_not_attempted() -> None:
    for read, kind in ((read_source, "passed"), (learner_notebook, "unattempted")):
        cell = next(cell for cell in read(LESSON).cells if cell.source.startswith("answer = {"))
        names: dict[str, object] = {}
        exec(cell.source, names)
        assert check("12.3", names["answer"]).kind == kind
