# torchrun --nproc-per-node 2 syncbatchnorm-on-cpu.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm1d(2))
model = DDP(model)
model(torch.randn(4, 2))
