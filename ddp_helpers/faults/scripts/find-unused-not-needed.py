# torchrun --nproc-per-node 2 find-unused-not-needed.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
model = DDP(torch.nn.Linear(2, 2), find_unused_parameters=True)
model(torch.ones(1, 2)).sum().backward()
dist.destroy_process_group()
