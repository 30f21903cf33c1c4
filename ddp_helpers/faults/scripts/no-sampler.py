# torchrun --nproc-per-node 2 no-sampler.py
import datetime

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
data = list(range(8))
torch.manual_seed(0)
seen = sorted(int(x) for batch in DataLoader(data, batch_size=2, shuffle=True) for x in batch)
everyone = [None] * world
dist.all_gather_object(everyone, seen)
print(f"rank {rank}: samples processed in all wrong={sum(map(len, everyone))} right={len(data)}")
dist.destroy_process_group()
