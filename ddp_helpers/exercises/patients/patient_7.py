import numpy as np
import torch
import torch.distributed as dist

data = np.load("../data/digits.npz")
images, labels = torch.from_numpy(data["images"]).flatten(1) / 16, torch.from_numpy(data["labels"]).long()
centres = torch.stack([images[:1700][labels[:1700] == digit].mean(0) for digit in range(10)])

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mine = range(1700 + rank, 1797, world)  # this rank's share of the held-out digits
right = {labels[number].item(): torch.tensor(0) for number in mine}
for number in mine:
    guess = torch.cdist(images[number : number + 1], centres).argmin()
    right[labels[number].item()] += guess == labels[number]
for count in right.values():
    dist.all_reduce(count)
if rank == 0:
    for digit in range(10):
        print(f"digit={digit} right={right[digit].item()} of={(labels[1700:] == digit).sum().item()}")
    print(f"all={sum(right.values()).item()}")
dist.destroy_process_group()
