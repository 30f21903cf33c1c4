# torchrun --nproc-per-node 2 module-prefix.py
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
model = DDP(torch.nn.Linear(2, 2))
torch.nn.Linear(2, 2).load_state_dict(model.state_dict())
