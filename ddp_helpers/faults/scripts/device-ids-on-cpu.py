# torchrun --nproc-per-node 2 device-ids-on-cpu.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
model = DDP(torch.nn.Linear(2, 2), device_ids=[rank])
