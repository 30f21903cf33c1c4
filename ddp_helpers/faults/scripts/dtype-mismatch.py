# torchrun --nproc-per-node 2 dtype-mismatch.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
x = torch.ones(2, dtype=torch.float32 if rank == 0 else torch.int32)
dist.all_reduce(x)
print(f"rank {rank}: wrong={x[0].item()} right=2")
dist.destroy_process_group()
