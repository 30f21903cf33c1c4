# torchrun --nproc-per-node 2 exit-code-7.py
import datetime
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 1:
    os.kill(os.getpid(), signal.SIGBUS)  # what a full /dev/shm gives
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
