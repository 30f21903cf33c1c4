# torchrun --nproc-per-node 2 iterable-dataset-not-sharded.py
import datetime

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(8)  # right: islice by rank and worker


n = torch.tensor([sum(len(b) for b in DataLoader(Stream(), batch_size=2, num_workers=2))])
dist.all_reduce(n)
print(f"rank {rank}: samples in all wrong={n.item()} right=8")
dist.destroy_process_group()
