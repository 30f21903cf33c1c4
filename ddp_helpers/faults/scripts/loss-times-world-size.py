# torchrun --nproc-per-node 2 loss-times-world-size.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(1, 1, bias=False))
loss = model(torch.full((1, 1), float(rank + 1))).sum() * world  # DDP already averages
loss.backward()
print(f"rank {rank}: gradient wrong={model.module.weight.grad.item()} right=1.5")
dist.destroy_process_group()
