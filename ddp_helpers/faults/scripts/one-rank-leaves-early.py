# torchrun --nproc-per-node 2 one-rank-leaves-early.py
import datetime
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
rank = dist.get_rank()
if rank == 1:
    sys.exit(0)  # "nothing to do", says the script; rank 0 waits
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
