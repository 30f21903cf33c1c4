# torchrun --nproc-per-node 2 learning-rate-per-rank.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(1, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
for loss in [1.0, 1.0, 1.0] if rank == 0 else [1.0, 0.5, 0.2]:  # each rank's own validation loss
    scheduler.step(loss)
lrs = [None] * world
dist.all_gather_object(lrs, round(optimizer.param_groups[0]["lr"], 6))
print(f"rank {rank}: learning rates wrong={lrs} right=[0.1, 0.1]")
dist.destroy_process_group()
