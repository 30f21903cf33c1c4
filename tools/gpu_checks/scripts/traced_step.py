"""Steps of a small DDP model under torch.profiler; each rank writes its trace into the folder of the first argument."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, record_function

on_gpu = torch.cuda.is_available()
rank, device = int(os.environ["RANK"]), torch.device("cpu")
if on_gpu:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")
width = 2048 if on_gpu else 64
layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers).to(device), device_ids=[device.index] if on_gpu else None)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batches = [torch.randn(512 if on_gpu else 8, width).pin_memory() if on_gpu else torch.randn(8, width) for _ in range(8)]


def step(batch):
    with record_function("step"):
        with record_function("data"):
            x = batch.to(device, non_blocking=True)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


for batch in batches[:5]:
    step(batch)
if on_gpu:
    torch.cuda.synchronize()
with profile(record_shapes=True) as prof:
    for batch in batches[5:]:
        step(batch)
    if on_gpu:
        torch.cuda.synchronize()
prof.export_chrome_trace(os.path.join(sys.argv[1], f"trace_{rank}.json"))
dist.barrier(device_ids=[device.index] if on_gpu else None)
dist.destroy_process_group()
