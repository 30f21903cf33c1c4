# torchrun --nproc-per-node 2 collective-order.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
rank = dist.get_rank()
x = torch.ones(2)
if rank == 0:
    dist.broadcast(x, 0)
    dist.all_reduce(x)
else:
    dist.all_reduce(x)
    dist.broadcast(x, 0)
print(f"rank {rank}: {x.tolist()} wrong={x[0].item()} right=2.0")
