# torchrun --nproc-per-node 2 monitored-barrier.py
import datetime
import time

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
else:
    time.sleep(5)
dist.destroy_process_group()
