# torchrun --nproc-per-node 2 send-without-recv.py
import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))  # to wait no half hour
rank = dist.get_rank()
if rank == 0:
    dist.send(torch.ones(4_000_000), dst=1, group=group)  # rank 1 never receives
else:
    time.sleep(6)
dist.destroy_process_group()
