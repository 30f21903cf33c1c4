# torchrun --nproc-per-node 2 uneven-inputs-silent.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
model = DDP(torch.nn.Linear(1, 1, bias=False))
for _ in range(3 - rank):  # rank 0: 3 batches, rank 1: 2
    model.zero_grad()
    model(torch.full((1, 1), 8.0)).sum().backward()
metric = torch.tensor([101.0 if rank == 0 else 100.0])
if rank == 1:
    dist.all_reduce(metric)  # pairs with rank 0's third gradient
    print(f"wrong={metric.item()} right=201.0")
dist.destroy_process_group()
