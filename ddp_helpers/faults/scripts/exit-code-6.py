# torchrun --nproc-per-node 2 exit-code-6.py
import datetime
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 1:
    os.abort()  # as a C++ library does when it gives up
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
