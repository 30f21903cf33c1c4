# torchrun --nproc-per-node 2 never-wrapped.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(1, 1, bias=False)  # no DDP: each rank trains its own model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.full((1, 1), float(rank + 1))).sum().backward()
optimizer.step()
mean = model.weight.detach().clone()
dist.all_reduce(mean, dist.ReduceOp.AVG)
print(f"rank {rank}: wrong={model.weight.item():.4f} right={mean.item():.4f}")
dist.destroy_process_group()
