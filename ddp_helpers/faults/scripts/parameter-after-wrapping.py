# torchrun --nproc-per-node 2 parameter-after-wrapping.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False)))
model.module.append(torch.nn.Linear(1, 1, bias=False))  # too late: DDP does not know it
for layer in model.module:
    layer.weight.data.fill_(1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.full((1, 1), float(rank + 1))).sum().backward()
optimizer.step()
mine = model.module[1].weight.detach().clone()
mean = mine.clone()
dist.all_reduce(mean)
print(f"rank {rank}: wrong={mine.item():.2f} right={mean.item() / world:.2f}")
dist.destroy_process_group()
