import math

import numpy as np
import torch
import torch.distributed as dist

data = np.load("../data/digits.npz")
images = torch.from_numpy(data["images"]).flatten(1) / 16

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

scans = images[:9]
size = math.ceil(len(scans) / world)
mine = scans[rank * size : (rank + 1) * size]
ink = sum(scan.mean().item() for scan in mine) / len(mine)
print(f"{len(mine)} scans, their mean ink is {ink:.4f}")

mean = torch.tensor(ink, dtype=torch.float64)
dist.all_reduce(mean)
mean /= world
if rank == 0:
    print(f"ink={mean.item():.6f}")
dist.destroy_process_group()
