"""How long explain() takes for a log of 50 MB from eight ranks: `make bench`, or run this file alone."""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ddp_helpers.faults import explain

MEGABYTES = 50
CAUSE = """[rank5]: Traceback (most recent call last):
[rank5]:   File "/home/user/train.py", line 88, in <module>
[rank5]:     loss = criterion(model(x), labels)
[rank5]: KeyError: 'label'
"""


def lines() -> Iterator[str]:
    """What a healthy job prints: NCCL's noise, progress, metrics whose names hold the words that are looked for."""
    draw = random.Random(0)
    for step in range(10**9):
        rank = step % 8
        kind = draw.randrange(10)
        if kind < 6:
            yield f"node-0:{1000 + rank}:{2000 + rank} [{rank}] NCCL INFO Channel {kind:02}/0 : {rank}[0] -> 1[1]\n"
        elif kind < 8:
            yield f"[rank{rank}]: epoch=1 step={step} loss={draw.random():.4f} val_error={draw.random():.4f} lr=1e-3\n"
        elif kind < 9:
            yield f"[rank{rank}]: \x1b[32m{step % 100}%|####\x1b[0m| {step}/99999\r[rank{rank}]: images/s=1830\n"
        else:
            yield f"[rank{rank}]: /site-packages/torch/x.py:12: UserWarning: a warning on every step, for no reason\n"


def write(path: Path) -> None:
    size, middle = 0, False
    with path.open("w", encoding="utf-8", newline="") as log:
        for line in lines():
            size += log.write(line)
            if not middle and size > MEGABYTES * 500_000:  # the cause stands in the middle
                middle = bool(log.write(CAUSE))
            if size > MEGABYTES * 1_000_000:
                break


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        write(path)
        explain("[rank0]: KeyError: 1\n")  # the patterns are compiled once
        seconds, cpu = [], []
        for _ in range(5):
            start, start_cpu = time.perf_counter(), time.process_time()
            explanation = explain(path)
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
    print(explanation.headline)
    wall, used = statistics.median(seconds), statistics.median(cpu)
    print(f"explain() of {MEGABYTES} MB: {wall:.2f} s, {used:.2f} s of CPU time (median of {len(seconds)})")
    return 0 if explanation.root_rank == 5 else 1


if __name__ == "__main__":
    sys.exit(main())
