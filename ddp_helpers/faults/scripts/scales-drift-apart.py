# torchrun --nproc-per-node 2 scales-drift-apart.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
model = torch.nn.Linear(1, 1, bias=False)  # not in DDP, or the gradients checked before the sum
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.full((1, 1), float("inf") if rank == 1 else 1.0)
scaler.scale(model(x).sum()).backward()
scaler.step(optimizer)
scaler.update()
scales = [None] * world
dist.all_gather_object(scales, scaler.get_scale())
print(f"rank {rank}: scales wrong={scales} right={[4.0] * world}")
dist.destroy_process_group()
