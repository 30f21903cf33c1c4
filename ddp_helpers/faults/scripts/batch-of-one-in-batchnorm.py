# torchrun --nproc-per-node 2 batch-of-one-in-batchnorm.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.BatchNorm1d(2))
data = torch.randn(9, 2)  # 5 samples a rank, batches of 4 and 1
for batch in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, world, rank)):
    model(batch)
dist.destroy_process_group()
