# torchrun --nproc-per-node 2 rank-raises.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 1:
    raise KeyError("label_column")
dist.all_reduce(torch.ones(1))
