# torchrun --nproc-per-node 2 accumulation-without-no-sync.py
import datetime

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
model = DDP(torch.nn.Linear(1, 1, bias=False))
calls = 0


def count(state, bucket):
    global calls
    calls += 1
    return default_hooks.allreduce_hook(None, bucket)


model.register_comm_hook(None, count)
for _ in range(4):  # right: with model.no_sync() around forward and backward of the first 3
    model(torch.ones(1, 1)).sum().backward()
print(f"rank {rank}: all_reduces wrong={calls} right=1")
dist.destroy_process_group()
