# torchrun --nproc-per-node 2 barrier-skipped.py
import datetime
import time

import torch.distributed as dist

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))  # to wait no half hour
rank = dist.get_rank()
if rank == 0:
    dist.barrier(group)  # "if rank == 0:" around a barrier
else:
    time.sleep(6)
dist.destroy_process_group()
