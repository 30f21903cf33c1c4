# torchrun --nproc-per-node 2 collective-on-one-rank.py
import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))  # to wait no half hour
rank = dist.get_rank()
if rank == 0:
    dist.all_reduce(torch.ones(1), group=group)  # rank 1 does not come
else:
    time.sleep(6)
