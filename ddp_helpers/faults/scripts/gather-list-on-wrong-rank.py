# torchrun --nproc-per-node 2 gather-list-on-wrong-rank.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.ones(1)
dist.gather(x, [torch.empty(1) for _ in range(world)], dst=0)  # rank 1 must pass None
dist.destroy_process_group()
