# torchrun --nproc-per-node 2 reentrant-checkpointing.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=True)


model = DDP(Net(), find_unused_parameters=True)
model(torch.ones(1, 2, requires_grad=True)).sum().backward()
dist.destroy_process_group()
