"""Exercises of lesson 01: who prints, who reads which file, who joins and leaves the process group.

Nothing is compared with a stored text: what is right follows from the world size of each run.
"""

from __future__ import annotations

import re
from collections import Counter

from ..result import Rank, Run
from .attempt import Attempt, ScriptExercise, Wrong, crowd, node_of
from .note import left_by

INIT_HARNESS = "init_harness.py"


# ---- 01.1: one line a node ------------------------------------------------------------------------------------------


def once_per_node(attempt: Attempt) -> str | None:
    """On each node exactly one rank prints, and it prints one line."""
    alone = attempt.run(1)
    if not _lines(alone.ranks[0]):
        return _hint_for_silence_alone(attempt)
    for nproc, nnodes in ((3, 1), (1, 2), (2, 2)):
        run = attempt.run(nproc, nnodes)
        for node in range(nnodes):
            talkers = [rank for rank in run.ranks if node_of(rank.folders[-1]) == node and _lines(rank)]
            if len(talkers) != 1:
                return _hint_for_talkers(run, node, nproc, nnodes, [rank.rank for rank in talkers])
    talkative = next((rank for rank in alone.ranks if len(_lines(rank)) > 1), None)
    if talkative:
        return f"{crowd(alone)} rank 0 printed {len(_lines(talkative))} lines. One is asked for."
    return None


def _lines(rank: Rank) -> list[str]:
    return [line for line in (rank.stdout or rank.stderr).splitlines() if line.strip()]


def _hint_for_silence_alone(attempt: Attempt) -> str:
    if any(_lines(rank) for rank in attempt.run(3).ranks):
        return "With 1 process, nobody printed. Which local rank is there also on a node with a single process?"
    return (
        "Nobody printed, neither with 1 process nor with 3. The environment holds text, not numbers: "
        "what is '0' == 0 in Python?"
    )


def _hint_for_talkers(run: Run, node: int, nproc: int, nnodes: int, talkers: list[int]) -> str:
    where = f"{crowd(run)} node {node}" if nnodes > 1 else crowd(run)
    if not talkers:
        return (
            f"{where} printed nothing: its ranks are {_listed(range(node * nproc, (node + 1) * nproc))}. "
            "There is one rank 0 in the whole world. Which of a rank's numbers starts again at 0 on every node?"
        )
    if len(talkers) == nproc:
        return f"{where} all {nproc} ranks of the node printed: {_listed(talkers)}. Who shall speak for a node?"
    return (
        f"{where} ranks {_listed(talkers)} printed, and one line was asked for. "
        "Is a number of processes or nodes written into your condition?"
    )


# ---- 01.2: every file once ------------------------------------------------------------------------------------------


def every_file_once(attempt: Attempt) -> str | None:
    """Together the ranks hold every file exactly once, and no rank has two files more than another."""
    for nproc, nnodes in ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (12, 1)):
        run = attempt.run(nproc, nnodes, returns=("files", "mine"))
        hint = _judge_shares(run, nproc * nnodes)
        if hint:
            return hint
    return None


def _judge_shares(run: Run, world: int) -> str | None:
    files = list(run.ranks[0].returned["files"])
    mine = [rank.returned["mine"] for rank in run.ranks]
    for rank, share in enumerate(mine):
        if isinstance(share, str) or not hasattr(share, "__iter__"):
            return f"{crowd(run)} rank {rank} has mine = {share!r}. It should be this rank's list of files."
    shares = [list(share) for share in mine]
    strange = [(rank, item) for rank, share in enumerate(shares) for item in share if item not in files]
    if strange:
        rank, item = strange[0]
        return f"{crowd(run)} rank {rank} has {item!r} in mine, which is no name in files."
    return _judge_counts(run, world, files, shares)


def _judge_counts(run: Run, world: int, files: list[str], shares: list[list[str]]) -> str | None:
    times = Counter(item for share in shares for item in share)
    lost = [file for file in files if not times[file]]
    twice = [file for file in files if times[file] > 1]
    if world > 1 and all(len(share) == len(files) for share in shares):
        return f"{crowd(run)} every rank reads all {len(files)} files. Which part of the list is this rank's?"
    if twice and lost:
        readers = [rank for rank, share in enumerate(shares) if twice[0] in share]
        return (
            f"{crowd(run)} ranks {_listed(readers)} all read {twice[0]}, and nobody reads {lost[0]}. "
            "Do all ranks see the same list, and has each a number that nobody else in the world has?"
        )
    if lost:
        return f"{crowd(run)} {_hint_for_loss(world, len(files), lost, shares)}"
    if twice:
        readers = [rank for rank, share in enumerate(shares) if twice[0] in share]
        return f"{crowd(run)} {twice[0]} is read {times[twice[0]]} times, by {_ranks(readers)}. Where does a share end?"
    return _judge_fairness(run, shares)


def _hint_for_loss(world: int, count: int, lost: list[str], shares: list[list[str]]) -> str:
    each, rest = divmod(count, world)
    if not any(shares):
        return "mine is empty on every rank, so that no file is read."
    if rest and all(len(share) == each for share in shares):
        return f"nobody reads {_listed(lost)}. {count} = {each} × {world} + {rest}: who takes the rest?"
    return (
        f"nobody reads {_listed(lost)}. Is a number of processes written into your answer? "
        "The script runs with any, and world_size says how many there are."
    )


def _judge_fairness(run: Run, shares: list[list[str]]) -> str | None:
    sizes = [len(share) for share in shares]
    if max(sizes) - min(sizes) <= 1:
        return None
    most, least = sizes.index(max(sizes)), sizes.index(min(sizes))
    return (
        f"{crowd(run)} nothing is lost, but rank {most} reads {max(sizes)} files and rank {least} reads {min(sizes)}. "
        "All wait for the slowest: deal the files so that no rank has two more than another."
    )


# ---- 01.3: in and out of the process group --------------------------------------------------------------------------


def in_and_out(attempt: Attempt) -> str | None:
    """Works under torchrun and alone, chooses what a GPU needs, and leaves the group also when the work fails."""
    for nproc in (1, 2, 3):
        hint = _judge_torchrun(attempt, nproc)
        if hint:
            return hint
    return (
        _judge_alone(attempt)
        or _judge_failing_work(attempt)
        or _judge_on_gpus(attempt)
        or _judge_alone_on_a_gpu(attempt)
    )


def _judge_torchrun(attempt: Attempt, nproc: int) -> str | None:
    run = attempt.run_through(INIT_HARNESS, "torchrun", nproc=nproc)
    try:
        attempt.succeeded(run)
    except Wrong as wrong:
        if "nccl" in wrong.failure.lower():
            raise Wrong(f"{wrong}\nNCCL needs GPUs, and these ranks have none. Which backend works where?") from None
        raise
    counted = {rank.rank: _counted(rank) for rank in run.ranks}
    for rank, total in counted.items():
        if total is None:
            return f'{crowd(run)} rank {rank} printed no "… of us worked together". Call work(), and leave it as it is.'
        if total != nproc:
            return f"{crowd(run)} rank {rank} counted {total}, not {nproc}: it works without having joined the others."
    alive = [rank for rank, seen in left_by(run, "seen.json").items() if seen["alive"]]
    if alive:
        return f"{crowd(run)} the process group was still there when {_ranks(alive)} ended. Who takes it down?"
    return None


def _counted(rank: Rank) -> int | None:
    found = re.search(r"(\d+) of us worked together", rank.stdout)
    return int(found.group(1)) if found else None


def _judge_alone(attempt: Attempt) -> str | None:
    run = attempt.run_through(INIT_HARNESS, "alone", nproc=1)
    start = "Alone (python SCRIPT, without torchrun)"
    if run.failure:
        message = run.failure.message
        if "environment variable" in message or run.failure.exception_type == "KeyError":
            why = "Only torchrun sets RANK and the others. Ask whether they are there before you join."
        elif "destroy" in run.failure.traceback:
            why = "You leave a group that was never joined. Ask before you leave."
        else:
            why = "Nobody else is there, and it should work all the same."
        return f"{start} the script failed: {run.failure.exception_type}: {message.splitlines()[0]}\n{why}"
    if _counted(run.ranks[0]) != 1:
        return f'{start} it did not print "1 of us worked together". The work must be done alone too.'
    if left_by(run, "seen.json")[0]["alive"]:
        return f"{start} the process group was still there at the end. Who takes it down?"
    return None


def _judge_failing_work(attempt: Attempt) -> str | None:
    run = attempt.run_through(INIT_HARNESS, "torchrun", "--fail", nproc=2)
    if run.failure is None:
        return "With --fail, work() raises, yet the script ended as if all were well. Let the exception go on its way."
    if "the work failed" not in run.failure.traceback:
        attempt.succeeded(run)
    alive = [rank for rank, seen in left_by(run, "seen.json").items() if seen["alive"]]
    if alive:
        return (
            f"When work() raises, {_ranks(alive)} ended with the process group still there. "
            "What does Python run on the way out, whether or not there was an exception?"
        )
    return None


def _judge_on_gpus(attempt: Attempt) -> str | None:
    """The ranks are told that each node has two GPUs, and are stopped where they would join."""
    run = attempt.run_through(INIT_HARNESS, "gpu", nproc=2, nnodes=2)
    for rank, seen in left_by(run, "seen.json").items():
        if not seen["joined"]:
            continue  # it got no further than a GPU that is not there: nothing can be said
        start = f"On two nodes with two GPUs each, rank {rank} (local rank {rank % 2})"
        if "nccl" not in (seen["backend"] or "nccl"):
            return f"{start} would join with {seen['backend']}: every gradient would go by way of the CPU."
        if seen["device"] is None:
            return f"{start} would join before it has chosen its GPU: all of a node would meet on GPU 0. Choose first."
        if seen["device"] != rank % 2:
            return f"{start} would take GPU {seen['device']}. Which number counts the processes of one node?"
    return None


def _judge_alone_on_a_gpu(attempt: Attempt) -> str | None:
    run = attempt.run_through(INIT_HARNESS, "alone-gpu", nproc=1)
    seen = left_by(run, "seen.json")[0]
    start = "Alone, on a machine with a GPU,"
    if seen["error"].startswith(("KeyError", "TypeError")):
        return (
            f"{start} the script fails: {seen['error']}. Only torchrun sets that. Which GPU does a lone process take?"
        )
    return None


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {_listed(numbers)}"


def _listed(items: object) -> str:
    words = [str(item) for item in items]  # type: ignore[attr-defined]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


CHECKS = {
    "01.1": ScriptExercise(
        "scripts/01_once_per_node.py", once_per_node, "with 1 and 3 processes, and on 2 nodes with 1 and 2 each"
    ),
    "01.2": ScriptExercise(
        "scripts/01_my_files.py", every_file_once, "with 1, 2, 3, 4 and 12 processes, and on 2 nodes with 2 each"
    ),
    "01.3": ScriptExercise(
        "scripts/01_in_and_out.py",
        in_and_out,
        "with 1, 2 and 3 processes, alone, with work that fails, and both as if there were GPUs",
    ),
}
