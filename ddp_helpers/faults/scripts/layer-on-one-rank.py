# torchrun --nproc-per-node 2 layer-on-one-rank.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
layers = [torch.nn.Linear(4, 4)]
if dist.get_rank() == 1:
    layers.append(torch.nn.Linear(4, 4))
model = DDP(torch.nn.Sequential(*layers))
