# torchrun --nproc-per-node 2 module-called-directly.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(1, 1, bias=False))
model.module(torch.full((1, 1), float(rank + 1))).sum().backward()  # model.module(x) in place of model(x)
print(f"rank {rank}: wrong={model.module.weight.grad.item()} right=1.5")
dist.destroy_process_group()
