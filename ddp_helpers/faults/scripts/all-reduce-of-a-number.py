# torchrun --nproc-per-node 2 all-reduce-of-a-number.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
loss = torch.tensor(1.5)
dist.all_reduce(loss.item())  # a Python number, not the tensor
dist.destroy_process_group()
