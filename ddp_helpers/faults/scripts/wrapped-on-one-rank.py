# torchrun --nproc-per-node 2 wrapped-on-one-rank.py
import datetime
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))  # to wait no half hour
rank = dist.get_rank()
model = torch.nn.Linear(2, 2)
if rank == 0:
    model = DDP(model, process_group=group)  # rank 1 trains alone
else:
    time.sleep(8)
dist.destroy_process_group()
