# torchrun --nproc-per-node 2 new-group-on-one-rank.py
import datetime
import time

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))  # every rank must make this call
else:
    time.sleep(8)
dist.destroy_process_group()
