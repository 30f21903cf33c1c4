# torchrun --nproc-per-node 2 attribute-of-wrapper.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))


class Net(torch.nn.Linear):
    def encode(self, x):
        return x


model = DDP(Net(2, 2))
model.encode(torch.ones(1, 2))  # lives on model.module
dist.destroy_process_group()
