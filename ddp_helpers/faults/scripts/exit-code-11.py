# torchrun --nproc-per-node 2 exit-code-11.py
import ctypes
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 1:
    ctypes.string_at(0)  # as a broken native library does
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
