"""ResNet50 on one GPU, with DataParallel on all, with DDP on all; the batch of each GPU is the first argument."""

import os
import sys
import time

import torch
import torch.distributed as dist
from gpu_checks.models import resnet50
from torch import nn
from torch.nn.parallel import DistributedDataParallel

on_gpu = torch.cuda.is_available()
rank, world_size, batch = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")  # ranks that wait do so on the CPU


def train(wrap, samples):
    """Seconds of each step, and the most memory of each GPU that this process sees."""
    torch.manual_seed(0)
    model = wrap((resnet50() if on_gpu else resnet50((1, 1), 4)).to(device))
    x = torch.randn(samples, 3, 224 if on_gpu else 32, 224 if on_gpu else 32, device=device)
    y = torch.randint(1000, (samples,), device=device)
    optimizer, times = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), []
    for turn in range(20 if on_gpu else 3):
        if turn == 1 and on_gpu:
            [torch.cuda.reset_peak_memory_stats(number) for number in range(world_size)]
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    peaks = [torch.cuda.max_memory_allocated(number) for number in range(world_size)] if on_gpu else []
    return times[5 if on_gpu else 1 :], peaks


measured = {}
if rank == 0:
    measured["1 GPU"] = train(lambda model: model, batch)
    measured["DataParallel"] = train(
        lambda m: nn.DataParallel(m, list(range(world_size))) if on_gpu else m, batch * world_size
    )
    if on_gpu:
        torch.cuda.empty_cache()
dist.all_reduce(torch.zeros(1))  # all wait for rank 0
measured["DDP"] = train(lambda model: DistributedDataParallel(model, device_ids=[rank] if on_gpu else None), batch)
dist.destroy_process_group()
