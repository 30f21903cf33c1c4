from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

data = np.load("../data/digits.npz")
images, labels = torch.from_numpy(data["images"]).flatten(1) / 16, torch.from_numpy(data["labels"]).long()
centres = torch.stack([images[:1700][labels[:1700] == digit].mean(0) for digit in range(10)])

dist.init_process_group("gloo", timeout=timedelta(seconds=2))
rank, world = dist.get_rank(), dist.get_world_size()
mine = torch.arange(1700, 1797)[rank::world]  # the 97 held-out digits
correct = 0
for number, batch in enumerate(mine.split(16)):
    guesses = torch.cdist(images[batch], centres).argmin(1)
    hits = (guesses == labels[batch]).sum()
    dist.all_reduce(hits)
    correct += hits.item()
    print(f"batch {number}: {correct} right so far")
dist.barrier()
if rank == 0:
    print(f"accuracy={correct / 97:.6f}")
dist.destroy_process_group()
