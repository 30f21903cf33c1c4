# torchrun --nproc-per-node 2 batchnorm-statistics.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.BatchNorm1d(1))
model(torch.full((4, 1), 10.0 * rank) + torch.arange(4.0)[:, None])
mine = model.module.running_mean.clone()
true = mine.clone()
dist.all_reduce(true)
print(f"rank {rank}: wrong={mine.item():.3f} right={true.item() / world:.3f}")
dist.destroy_process_group()
