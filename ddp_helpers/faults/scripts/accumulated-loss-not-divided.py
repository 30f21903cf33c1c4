# torchrun --nproc-per-node 2 accumulated-loss-not-divided.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
model = DDP(torch.nn.Linear(1, 1, bias=False))
for _ in range(4):
    model(torch.ones(1, 1)).mean().backward()  # right: (loss / 4).backward()
print(f"rank {rank}: gradient wrong={model.module.weight.grad.item()} right=1.0")
dist.destroy_process_group()
