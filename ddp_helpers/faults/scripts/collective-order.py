# torchrun --nproc-per-node 2 collective-order.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))  # to wait no half hour
rank = dist.get_rank()
x = torch.ones(2)
if rank == 0:
    dist.broadcast(x, 0, group=group)
    dist.all_reduce(x, group=group)
else:
    dist.all_reduce(x, group=group)
    dist.broadcast(x, 0, group=group)
print(f"rank {rank}: {x.tolist()} wrong={x[0].item()} right=2.0")
