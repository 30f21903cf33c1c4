"""NCCL with one rank: what wait() waits for, whether DDP changes a gradient, and a tensor on the CPU."""

import os
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")

# wait(): the GPU has long work to do before the all_reduce. Is that done when wait() returns?
dist.all_reduce(torch.ones(1, device=device))  # the communicator is made here
still_busy, size = False, 8192 if on_gpu else 64
a = torch.rand(size, size, device=device)
out = a @ a
if on_gpu:
    torch.cuda.synchronize()
for _ in range(60 if on_gpu else 1):
    torch.mm(a, a, out=out)
if on_gpu:
    before_it = torch.cuda.Event()
    before_it.record()
handle = dist.all_reduce(out, async_op=True)
handle.wait()
if on_gpu:
    still_busy = not before_it.query()  # had wait() stopped Python, all before the all_reduce would be done
    torch.cuda.synchronize()
right = torch.equal(out, a @ a)
del a, out

# DDP with one rank: the gradients of the model alone.
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
x = torch.randn(32, 64, device=device)
alone = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)(x).square().mean().backward()
same_gradients = all(
    torch.allclose(p.grad, g, rtol=1e-4, atol=1e-6) for p, g in zip(model.parameters(), alone, strict=True)
)

# Objects travel as tensors, on the GPU with NCCL (lesson 02.4).
text = "x" * 2**22
if on_gpu:
    torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated() if on_gpu else 0
objects = [None]
dist.all_gather_object(objects, text)
object_bytes = (torch.cuda.max_memory_allocated() if on_gpu else 0) - before

try:
    dist.all_reduce(torch.ones(1))  # on the CPU
    refused = ""
except (RuntimeError, ValueError):
    refused = traceback.format_exc()
dist.barrier(device_ids=[device.index] if on_gpu else None)
dist.destroy_process_group()
