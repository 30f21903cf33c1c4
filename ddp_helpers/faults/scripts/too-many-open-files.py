# torchrun --nproc-per-node 2 too-many-open-files.py
import datetime
import resource

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))
data = [torch.ones(1) for _ in range(400)]
kept = list(torch.utils.data.DataLoader(data, batch_size=1, num_workers=1))  # keeps every file open
dist.destroy_process_group()
