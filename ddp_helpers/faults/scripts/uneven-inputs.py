# torchrun --nproc-per-node 2 uneven-inputs.py
import datetime
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))  # to wait no half hour
rank = dist.get_rank()
model = DDP(torch.nn.Linear(1, 1), process_group=group)
for _ in range(3 - rank):  # rank 0: 3 batches, rank 1: 2
    model(torch.ones(1, 1)).sum().backward()
if rank == 1:
    time.sleep(6)
