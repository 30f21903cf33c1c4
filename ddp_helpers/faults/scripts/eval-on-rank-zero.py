# torchrun --nproc-per-node 2 eval-on-rank-zero.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))  # to wait no half hour
rank = dist.get_rank()
model = DDP(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)), process_group=group)
model(torch.randn(4, 2)).sum().backward()
if rank == 0:
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 2))  # through the wrapper: its buffers are broadcast
dist.barrier(group)
dist.destroy_process_group()
