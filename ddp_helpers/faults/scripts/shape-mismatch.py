# torchrun --nproc-per-node 2 shape-mismatch.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
dist.all_reduce(torch.ones(4 if rank == 0 else 6))
