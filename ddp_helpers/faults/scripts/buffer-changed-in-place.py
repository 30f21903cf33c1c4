# torchrun --nproc-per-node 2 buffer-changed-in-place.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        out = self.layer(x) * self.scale
        self.scale.mul_(0.9)  # the backward pass still needs the old value
        return out


model = DDP(Net())
model(torch.ones(1, 2)).sum().backward()
