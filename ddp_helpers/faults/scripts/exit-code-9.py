# torchrun --nproc-per-node 2 exit-code-9.py
import datetime
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does when memory runs out
dist.all_reduce(torch.ones(1))
