# torchrun --nproc-per-node 2 torn-checkpoint.py
import datetime
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 0:
    torch.save({"w": torch.ones(100_000)}, "torn.pt")
    os.truncate("torn.pt", 200_000)  # a kill, a full disk, or a second writer
dist.barrier()
torch.load("torn.pt")
dist.destroy_process_group()
