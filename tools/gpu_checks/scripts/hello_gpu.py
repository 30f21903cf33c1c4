"""One rank: does CUDA start here, and what does an unseeded random number look like?"""

import os
import time

import torch
import torch.distributed as dist

start = time.perf_counter()
fresh = not torch.cuda.is_initialized()
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")
numbers = torch.rand(4, device=device)  # unseeded
matrix = torch.ones(256, 256, device=device)
product = (matrix @ matrix)[0, 0].item()
total = torch.ones(1, device=device)
dist.all_reduce(total)
device_type, total, numbers = device.type, total.item(), numbers.tolist()
took = time.perf_counter() - start
dist.barrier()
dist.destroy_process_group()
