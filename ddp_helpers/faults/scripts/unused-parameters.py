# torchrun --nproc-per-node 2 unused-parameters.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.b(x)  # a is never used


model = DDP(Net())
for step in range(2):
    model(torch.ones(1, 2)).sum().backward()
    print(f"rank {rank} step {step} ran")
