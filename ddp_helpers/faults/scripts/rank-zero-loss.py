# torchrun --nproc-per-node 2 rank-zero-loss.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(rank)
loss = torch.rand(1)
mean = loss.clone()
dist.all_reduce(mean, dist.ReduceOp.AVG)
if rank == 0:
    print(f"wrong={loss.item():.4f} right={mean.item():.4f}")
dist.destroy_process_group()
