# torchrun --nproc-per-node 2 collective-order-swapped.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
a, b = torch.tensor([1.0]), torch.tensor([10.0])
for x in (a, b) if rank == 0 else (b, a):  # same shapes, other order
    dist.all_reduce(x)
print(f"rank {rank}: wrong={a.item()} right=2.0")
dist.destroy_process_group()
