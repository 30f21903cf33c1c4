"""Exercises of lesson 02: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

from textwrap import indent

import pytest
from build_notebooks import Lesson
from exercise_cells import Cells

from ddp_helpers.exercises.lesson02 import epochs_alone

LESSON = Lesson("02_how_do_ranks_talk")
SCRIPTS = {
    "02.1": "scripts/02_global_mean.py",
    "02.2": "scripts/02_ring.py",
    "02.3": "scripts/02_stop_together.py",
}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
with_solution = CELLS.with_solutions
pytestmark = pytest.mark.usefixtures("notebook_folder")


RANKS = "rank, world = dist.get_rank(), dist.get_world_size()\n"
OTHER_STYLES = {
    "02.1 gathers the lists": (
        "02.1",
        """
        everyones = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, scores)
        together = [score for shard in everyones for score in shard]
        return sum(together) / len(together)
        """,
    ),
    "02.1 weighs the means, in single precision": (
        "02.1",
        """
        count = torch.tensor(float(len(scores)))
        mean = torch.tensor(scores).mean() if scores else torch.zeros(())
        weighted = mean * count
        dist.all_reduce(weighted)
        dist.all_reduce(count)
        return weighted / count
        """,
    ),
    "02.1 by way of rank 0": (
        "02.1",
        """
        box = [None]
        gathered = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object((sum(scores), len(scores)), gathered)
        if dist.get_rank() == 0:
            sums, counts = zip(*gathered)
            box = [sum(sums) / sum(counts)]
        dist.broadcast_object_list(box, src=0)
        return box[0]
        """,
    ),
    "02.2 to the left, both messages in one batch, chunks padded": (
        "02.2",
        RANKS
        + """
flat = tensor.flatten()
length = -(-len(flat) // world)
padded = torch.zeros(length * world, dtype=tensor.dtype)
padded[:len(flat)] = flat
chunks = padded.view(world, length)
sent = 0

def exchange(out, into):
    messages = [dist.P2POp(dist.isend, out, (rank - 1) % world), dist.P2POp(dist.irecv, into, (rank + 1) % world)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    return out.nbytes

for step in range(world - 1):
    into = torch.empty_like(chunks[0])
    sent += exchange(chunks[(rank + step) % world], into)
    chunks[(rank + step + 1) % world] += into
for step in range(world - 1):
    sent += exchange(chunks[(rank + step - 1) % world], chunks[(rank + step) % world])
tensor.copy_(padded[:len(flat)].view_as(tensor))
return sent
""",
    ),
    "02.2 even ranks send first, odd ones receive first": (
        "02.2",
        RANKS
        + """
parts = torch.tensor_split(tensor.view(-1), world)
right, left, sent = (rank + 1) % world, (rank - 1) % world, 0
for half in ("add", "copy"):
    for step in range(world - 1):
        first = rank - step if half == "add" else rank + 1 - step
        out, own = parts[first % world], parts[(first - 1) % world]
        into = torch.zeros_like(own)
        if rank % 2 == 0:
            dist.send(out, right)
            dist.recv(into, left)
        else:
            dist.recv(into, left)
            dist.send(out, right)
        sent += out.numel() * out.element_size()
        own.copy_(own + into if half == "add" else into)
return sent
""",
    ),
    "02.3 as an object": (
        "02.3",
        """
        box = [stop]
        dist.broadcast_object_list(box, src=0)
        stop = box[0]
        """,
    ),
    "02.3 gathers all and reads rank 0's": (
        "02.3",
        """
        everyones = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(everyones, torch.tensor([float(stop)]))
        if everyones[0]:
            break
        continue
        """,
    ),
    "02.3 a sum to which only rank 0 adds": (
        "02.3",
        """
        flag = torch.tensor(int(stop and dist.get_rank() == 0))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        stop = flag.item() == 1
        """,
    ),
}


@pytest.mark.parametrize(("exercise", "solution"), OTHER_STYLES.values(), ids=OTHER_STYLES)
def test_a_right_answer_in_another_style_passes(exercise: str, solution: str) -> None:
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.passed, verdict


# What is wrong, the answer, and words that only this mistake's hint has.
MEAN = {
    "the mean of means": (
        "mean = torch.tensor(scores).mean() if scores else torch.zeros(())\n"
        "dist.all_reduce(mean, op=dist.ReduceOp.AVG)\nreturn mean.item()\n",
        "the mean of the ranks' means: rank 1's 3 scores weigh as much in it as rank 0's 1",
    ),
    "asks nobody": ("return sum(scores) / max(1, len(scores))\n", "has anybody asked the others?"),
    "an empty list": (
        "mean = torch.tensor(scores).mean() * len(scores)\ncount = torch.tensor(float(len(scores)))\n"
        "dist.all_reduce(mean)\ndist.all_reduce(count)\nreturn (mean / count).item()\n",
        "What is the mean of no scores",
    ),
    "divides by nothing": (
        "total = torch.tensor([sum(scores) / len(scores) * len(scores), len(scores)])\n"
        "dist.all_reduce(total)\nreturn (total[0] / total[1]).item()\n",
        "A rank may have no scores. By which number",
    ),
    "whole numbers from the empty rank only": (
        "sums = torch.tensor([sum(scores), len(scores)])\ndist.all_reduce(sums)\nreturn (sums[0] / sums[1]).item()\n",
        "Which dtype has torch.tensor(sum([]))?",
    ),
    "an empty rank stays away": (
        "if not scores:\n    return 0.0\nsums = torch.tensor([sum(scores), float(len(scores))])\n"
        "dist.all_reduce(sums)\nreturn (sums[0] / sums[1]).item()\n",
        "It has no scores. Does that excuse it",
    ),
    "only rank 0 asks": (
        "sums = torch.tensor([sum(scores), float(len(scores))])\n"
        "if dist.get_rank() == 0:\n    dist.all_reduce(sums)\nreturn (sums[0] / sums[1]).item()\n",
        "Which rank passes it by?",
    ),
    "reduced to rank 0": (
        "sums = torch.tensor([sum(scores), float(len(scores))])\ndist.reduce(sums, dst=0)\n"
        "return (sums[0] / sums[1]).item() if dist.get_rank() == 0 else 1000.0\n",
        "Rank 0 has it. Which collective leaves the result on every rank",
    ),
    "reduced to rank 0, with what is left elsewhere": (
        "sums = torch.tensor([sum(scores), float(len(scores))])\ndist.reduce(sums, dst=0)\n"
        "return (sums[0] / sums[1]).item()\n",
        "Rank 0 has it. Which collective leaves the result on every rank",
    ),
    "only rank 0 returns it": (
        "sums = torch.tensor([sum(scores), float(len(scores))])\ndist.all_reduce(sums)\n"
        "if dist.get_rank() == 0:\n    return (sums[0] / sums[1]).item()\n",
        "rank 1 returned None, though rank 0 knows the mean",
    ),
    "the sum": (
        "total = torch.tensor(float(sum(scores)))\ndist.all_reduce(total)\nreturn total.item()\n",
        "the sum of all scores",
    ),
    "the own count": (
        "total = torch.tensor(float(sum(scores)))\ndist.all_reduce(total)\n"
        "return total.item() / (max(1, len(scores)) * dist.get_world_size())\n",
        "divided by 2 times rank 0's own count",
    ),
    "whole numbers": (
        "sums = torch.tensor([sum(scores), len(scores)], dtype=torch.int64)\ndist.all_reduce(sums)\n"
        "return (sums[0] // sums[1]).item()\n",
        "Only whole numbers",
    ),
    "sums cut to whole numbers": (
        "sums = torch.tensor([sum(scores), len(scores)], dtype=torch.int64)\ndist.all_reduce(sums)\n"
        "return (sums[0] / sums[1]).item()\n",
        "Only whole numbers",
    ),
    "the lesson's own answer": ("return 4.5\n", "on this rank, which of the two is another?"),
}

EXCHANGE = "work = dist.isend(outgoing, (rank + 1) % world)\ndist.recv(received, (rank - 1) % world)\nwork.wait()"


def ring(
    second: str = "mine.copy_(received)",
    steps: str = "2 * (world - 1)",
    split: str = "tensor.view(-1).tensor_split(world)",
    exchange: str = EXCHANGE,
    count: str = "outgoing.nbytes",
    end: str = "return sent",
) -> str:
    return (
        f"{RANKS}chunks = {split}\nsent = 0\nfor step in range({steps}):\n"
        "    outgoing, mine = chunks[(rank - step) % world], chunks[(rank - step - 1) % world]\n"
        "    received = torch.empty_like(mine)\n"
        f"{indent(exchange, '    ')}\n    sent += {count}\n"
        f"    if step < world - 1:\n        mine += received\n    else:\n        {second}\n{end}\n"
    )


RING = {
    "all_reduce": ("dist.all_reduce(tensor)\nreturn 0\n", "called all_reduce, in cell line 7. Here you are the one"),
    "reduce_scatter and all_gather": (
        RANKS + "out = [torch.empty_like(tensor) for _ in range(world)]\ndist.all_gather(out, tensor)\n"
        "tensor.copy_(sum(out))\nreturn tensor.nbytes\n",
        "called all_gather",
    ),
    "send first": (
        ring(exchange="dist.send(outgoing, (rank + 1) % world)\ndist.recv(received, (rank - 1) % world)"),
        "Who gets to recv?",
    ),
    "receive first": (
        ring(exchange="dist.recv(received, (rank - 1) % world)\ndist.send(outgoing, (rank + 1) % world)"),
        "Who has sent anything?",
    ),
    "only the first half": (ring(steps="world - 1"), "How do finished chunks get to the ranks that lack them?"),
    "adds in the second half too": (ring(second="mine += received"), "Are finished chunks added, or copied?"),
    "drops the rest": (
        ring(split="tensor.view(-1)[:tensor.numel() // world * world].chunk(world)"),
        "who takes care of the rest?",
    ),
    "fewer chunks than ranks": (
        ring(split="tensor.view(-1).chunk(world)"),
        "`chunk` may return fewer pieces than there are ranks. Which function always returns",
    ),
    "pieces of one length": (
        ring(split="tensor.view(-1).split(-(-tensor.numel() // world))"),
        "`split` may return fewer pieces than there are ranks. Which function always returns",
    ),
    "counts chunks past the last": (
        ring(exchange=EXCHANGE + "\nchunks[rank + 1]"),
        "rank 1 failed (cell line 16: chunks[rank + 1]): IndexError: tuple index out of range",
    ),
    "sums a copy": (ring(split="tensor.clone().view(-1).tensor_split(world)"), "written into `tensor` itself?"),
    "whole tensors go round": (
        RANKS + "total, travelling, sent = tensor.clone(), tensor.clone(), 0\nfor step in range(world - 1):\n"
        "    received = torch.empty_like(tensor)\n    request = dist.isend(travelling, (rank + 1) % world)\n"
        "    dist.recv(received, (rank - 1) % world)\n    request.wait()\n    sent += tensor.nbytes\n"
        "    total += received\n    travelling = received\ntensor.copy_(total)\nreturn sent\n",
        "2.00 times the tensor. 2 (N - 1)/N is 1.33. Does more than one chunk travel in a step?",
    ),
    "cuts along the first dimension": (
        ring(split="tensor.tensor_split(world)"),
        "The largest message had 40 bytes. How large need the largest chunk be?",
    ),
    "each chunk straight to its owner": (
        RANKS + "chunks, sent = tensor.view(-1).tensor_split(world), 0\nfor add in (True, False):\n"
        "    for away in range(1, world):\n        to, source = (rank + away) % world, (rank - away) % world\n"
        "        out, into = (chunks[to], chunks[rank]) if add else (chunks[rank], chunks[source])\n"
        "        received = torch.empty_like(into)\n        request = dist.isend(out, to)\n"
        "        dist.recv(received, source)\n        request.wait()\n        sent += out.nbytes\n"
        "        into.copy_(into + received if add else received)\nreturn sent\n",
        "rank 0 sent to ranks 1 and 2. In a ring it sends to one neighbour",
    ),
    "counts elements": (ring(count="outgoing.numel()"), "That is the number of elements"),
    "four bytes written in": (ring(count="4 * outgoing.numel()"), "An element of this tensor has 8 bytes, not 4"),
    "counts by the formula": (
        ring(end="return 2 * (world - 1) * tensor.nbytes // world"),
        "Chunks need not be of one length",
    ),
    "counts nothing": (ring(end=""), "returned None. How many bytes has it sent?"),
    "sends to itself when alone": (
        ring(steps="max(1, 2 * (world - 1))"),
        "With 1 process, rank 0 failed",
    ),
}
STOP = {
    "each for itself": ("pass\n", "each decided for itself"),
    "one stops, all stop": (
        "flag = torch.tensor(int(stop))\ndist.all_reduce(flag, op=dist.ReduceOp.MAX)\nstop = bool(flag)\n",
        "Does every rank have a say?",
    ),
    "all must want it": (
        "flag = torch.tensor(int(stop))\ndist.all_reduce(flag, op=dist.ReduceOp.MIN)\nstop = bool(flag)\n",
        "Was a vote asked for?",
    ),
    "only who stops tells": (
        "if stop:\n    dist.broadcast(torch.ones(1), src=0)\n",
        "Rank 0 speaks. Who has to listen",
    ),
    "only rank 0 broadcasts": (
        "flag = torch.tensor(float(stop))\nif dist.get_rank() == 0:\n    dist.broadcast(flag, src=0)\n"
        "stop = bool(flag)\n",
        "Rank 0 speaks. Who has to listen",
    ),
    "the last rank decides": (
        "flag = torch.tensor(int(stop))\ndist.broadcast(flag, src=dist.get_world_size() - 1)\nstop = bool(flag)\n",
        "Rank 1 decides for all",
    ),
    "each broadcasts its own": (
        "flag = torch.tensor(int(stop))\ndist.broadcast(flag, src=dist.get_rank())\nstop = bool(flag)\n",
        "with the same arguments?",
    ),
    "heard, not heeded": (
        "flag = torch.tensor(int(stop))\ndist.broadcast(flag, src=0)\n",
        "did all heed it?",
    ),
    "rank 0 leaves before it tells": (
        "if dist.get_rank() == 0 and stop:\n    break\nflag = torch.tensor(int(stop))\n"
        "dist.broadcast(flag, src=0)\nstop = bool(flag)\n",
        "did all heed it?",
    ),
}
WRONG = {
    f"{exercise} {name}": (exercise, solution, hint)
    for exercise, answers in {"02.1": MEAN, "02.2": RING, "02.3": STOP}.items()
    for name, (solution, hint) in answers.items()
}


@pytest.mark.parametrize(("exercise", "solution", "hint"), WRONG.values(), ids=WRONG)
def test_a_typical_mistake_gets_its_own_hint(
    exercise: str, solution: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddp_helpers.exercises.lesson02.PATIENCE", 1.0)  # many of the mistakes hang
    verdict = checked(exercise, with_solution(exercise, solution))
    assert verdict.kind == "wrong"
    assert hint in verdict.text
    others = {other for _, other in {**MEAN, **RING, **STOP}.values() if other not in hint and hint not in other}
    assert not [other for other in others if other in verdict.text]


@pytest.mark.parametrize(
    ("losses", "patience", "epochs"), [([5, 4, 4, 4, 3], 2, 4), ([3, 3], 1, 2), ([3, 2, 1], 1, 3), ([2, 2, 2], 3, 3)]
)
def test_the_oracle_of_early_stopping_counts_as_the_lessons_loop_does(
    losses: list[int], patience: int, epochs: int
) -> None:
    assert epochs_alone(losses, patience) == epochs
