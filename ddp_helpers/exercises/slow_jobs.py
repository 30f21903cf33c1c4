"""Three trainings, each slow for another reason: ``slow_jobs.py A|B|C`` leaves scripts/slow_A_0.json, one trace a rank.

Exercise 10.2 asks which reason, from the pictures. If you want to find out yourself, don't read on.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, record_function

CAUSES = {"A": "communication", "B": "rank 0", "C": "data"}
BATCH = 64
NUMBERS = 200  # averaged over the ranks in each step, one by one
SLOWER = 50  # times as many samples, on the rank that is slow
READING = 0.08  # seconds in which a disk would be read


def main(job: str) -> None:
    cause = CAUSES[job]
    os.environ["KINETO_LOG_LEVEL"] = "6"
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batch = BATCH * (SLOWER if cause == f"rank {rank}" else 1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def train_step() -> None:
        with record_function("data"):
            x = torch.rand(batch, 256)
            if cause == "data":
                time.sleep(READING)
        with record_function("forward"):
            loss = model(x).square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        if cause == "communication":
            with record_function("metrics"):
                for number in torch.zeros(NUMBERS, 1):
                    dist.all_reduce(number)

    for _ in range(2):  # DDP changes its buckets after the first step
        train_step()
    with profile(record_shapes=True) as prof:
        dist.barrier()  # the profiler starts on one rank before the other: that is no part of the step
        with record_function("step"):
            train_step()
    prof.export_chrome_trace(f"scripts/slow_{job}_{rank}.json")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
