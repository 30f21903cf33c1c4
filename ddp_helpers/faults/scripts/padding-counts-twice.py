# torchrun --nproc-per-node 2 padding-counts-twice.py
import datetime

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
errors = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])  # 5 samples, 1 wrong
sampler = DistributedSampler(errors, world, rank, shuffle=False)
mine = errors[list(sampler)]
total = torch.tensor([mine.sum(), float(len(mine))])
dist.all_reduce(total)
print(f"rank {rank}: error rate wrong={total[0].item() / total[1].item():.3f} right=0.200")
dist.destroy_process_group()
