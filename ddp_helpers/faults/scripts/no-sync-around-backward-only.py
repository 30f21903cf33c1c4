# torchrun --nproc-per-node 2 no-sync-around-backward-only.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
model = DDP(torch.nn.Linear(1, 1, bias=False))
loss = model(torch.full((1, 1), float(rank + 1))).sum()  # forward outside no_sync
with model.no_sync():
    loss.backward()
print(f"rank {rank}: gradient wrong={model.module.weight.grad.item()} right={rank + 1.0}")
dist.destroy_process_group()
