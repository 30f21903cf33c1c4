import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

data = np.load("../data/digits.npz")
images, labels = torch.from_numpy(data["images"]).flatten(1) / 16, torch.from_numpy(data["labels"]).long()
images[101] = torch.nan  # one scan arrived damaged
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(8):
    batch = torch.arange(48 * step, 48 * (step + 1))[rank::world]
    loss = cross_entropy(model(images[batch]), labels[batch])
    print(f"step {step}: loss {loss.item():.4f}")
    if not torch.isfinite(loss):
        continue  # nothing to be learnt from this one
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("trained")
dist.destroy_process_group()
