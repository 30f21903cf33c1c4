# torchrun --nproc-per-node 2 peer-left.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 0:
    dist.all_reduce(torch.ones(1))  # rank 1 has already left the script
