# torchrun --nproc-per-node 2 batch-size-per-rank.py
import datetime

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
data = list(range(512))
loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data, world, rank))
n = torch.tensor([len(next(iter(loader)))])
dist.all_reduce(n)
print(f"rank {rank}: samples per step wrong={n.item()} right=64")
dist.destroy_process_group()
