from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

data = np.load("../data/digits.npz")
images, labels = torch.from_numpy(data["images"]).flatten(1) / 16, torch.from_numpy(data["labels"]).long()
dist.init_process_group("gloo", timeout=timedelta(seconds=2))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(10):
    batch = torch.arange(48 * step, 48 * (step + 1))[rank::world]
    loss = cross_entropy(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    print(f"loss={mean.item() / world:.6f}")
dist.barrier()
dist.destroy_process_group()
