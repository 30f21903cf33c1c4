# torchrun --nproc-per-node 2 models-differ.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 5 if rank == 0 else 6))
