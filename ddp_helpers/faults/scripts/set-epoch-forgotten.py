# torchrun --nproc-per-node 2 set-epoch-forgotten.py
import datetime

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
data = list(range(10))
sampler = DistributedSampler(data, world, rank, shuffle=True)
epochs = []
for _ in range(3):  # right: sampler.set_epoch(epoch) here
    epochs.append(tuple(sampler))
print(f"rank {rank}: different orders in 3 epochs wrong={len(set(epochs))} right=3")
dist.barrier()
dist.destroy_process_group()
