# torchrun --nproc-per-node 2 size-mismatch.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
torch.nn.Linear(2, 3).load_state_dict(torch.nn.Linear(2, 2).state_dict())
dist.destroy_process_group()
