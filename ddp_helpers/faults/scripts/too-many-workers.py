# torchrun --nproc-per-node 2 too-many-workers.py
import datetime
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
loader = torch.utils.data.DataLoader(list(range(4)), num_workers=8 * (os.cpu_count() or 1))
print("8 workers a core, in every rank")
dist.barrier()
dist.destroy_process_group()
