# torchrun --nproc-per-node 2 accuracy-divided-twice.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
hits, seen = torch.tensor([4.0]), torch.tensor([4.0])  # a perfect rank
dist.all_reduce(hits)
dist.all_reduce(seen)
print(f"rank {rank}: accuracy wrong={(hits / seen / world).item()} right={(hits / seen).item()}")
dist.destroy_process_group()
