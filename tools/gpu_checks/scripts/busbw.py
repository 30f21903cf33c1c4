"""Seconds of an all_reduce, for each size of the arguments (bytes), in `times`. The slowest rank's count."""

import os
import sys
import time

import torch
import torch.distributed as dist

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
times = {}
for size in map(int, sys.argv[1:]):
    data = torch.zeros(size // 4, device=device)
    found = []
    for _ in range(25 if on_gpu else 4):
        if on_gpu:
            torch.cuda.synchronize()
        dist.all_reduce(torch.zeros(1))  # on the CPU: all begin together
        start = time.perf_counter()
        dist.all_reduce(data)
        if on_gpu:
            torch.cuda.synchronize()
        took = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        found.append(took.item())
    times[size] = found[5 if on_gpu else 1 :]
    del data
dist.destroy_process_group()
