# torchrun --nproc-per-node 2 same-augmentation-on-all-ranks.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # right: torch.manual_seed(0 + rank) after the model is made
noise = torch.randn(1)
all_noise = [torch.empty(1) for _ in range(world)]
dist.all_gather(all_noise, noise)
print(f"rank {rank}: different draws over ranks wrong={len({x.item() for x in all_noise})} right={world}")
dist.destroy_process_group()
