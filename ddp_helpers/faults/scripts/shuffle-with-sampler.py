# torchrun --nproc-per-node 2 shuffle-with-sampler.py
import datetime

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
data = list(range(10))
DataLoader(data, shuffle=True, sampler=DistributedSampler(data, world, rank))
