# torchrun --nproc-per-node 2 barrier-skipped.py
import datetime
import time

import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
rank = dist.get_rank()
if rank == 0:
    dist.barrier()  # "if rank == 0:" around a barrier
else:
    time.sleep(6)
dist.destroy_process_group()
