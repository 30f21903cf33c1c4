# torchrun --nproc-per-node 2 init-twice.py
import datetime

import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
dist.init_process_group("gloo")  # a second call, as when a cell is run again
