import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

data = np.load("../data/digits.npz")
images, labels = torch.from_numpy(data["images"]).flatten(1) / 16, torch.from_numpy(data["labels"]).long()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
body = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh())
model = DistributedDataParallel(body)
model.module.append(torch.nn.Linear(32, 10))  # the head, for our ten digits
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(20):
    batch = torch.arange(48 * step, 48 * (step + 1))[rank::world]
    loss = cross_entropy(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
sizes = [f"{parameter.norm().item():.5f}" for parameter in model.parameters()]
print(f"loss={loss.item():.4f}, norms of the parameters: {' '.join(sizes)}")
dist.destroy_process_group()
