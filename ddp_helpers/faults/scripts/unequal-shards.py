# torchrun --nproc-per-node 2 unequal-shards.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
x = torch.arange(8.0)
mine = x[:6] if rank == 0 else x[6:]  # 6 and 2 samples
mean = mine.mean()
dist.all_reduce(mean, dist.ReduceOp.AVG)
print(f"rank {rank}: wrong={mean.item()} right={x.mean().item()}")
dist.destroy_process_group()
