# torchrun --nproc-per-node 2 set-epoch-on-loader.py
import datetime

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
data = list(range(10))
loader = DataLoader(data, sampler=DistributedSampler(data, world, rank))
loader.set_epoch(1)  # right: loader.sampler.set_epoch(1)
dist.destroy_process_group()
