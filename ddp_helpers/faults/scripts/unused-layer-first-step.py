# torchrun --nproc-per-node 2 unused-layer-first-step.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return self.b(x)  # a shares b's bucket and never gets a gradient


model = DDP(Net())
model(torch.full((1, 1), float(rank + 1))).sum().backward()
print(f"rank {rank}: wrong={model.module.b.weight.grad.item()} right=1.5")
dist.destroy_process_group()
