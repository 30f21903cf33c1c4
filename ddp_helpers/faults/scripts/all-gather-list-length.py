# torchrun --nproc-per-node 2 all-gather-list-length.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
out = [torch.empty(1)]  # one slot, two ranks
dist.all_gather(out, torch.ones(1))
dist.destroy_process_group()
