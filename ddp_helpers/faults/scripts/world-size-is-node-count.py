# torchrun --nproc-per-node 2 world-size-is-node-count.py
import datetime
import os

import torch.distributed as dist

dist.init_process_group(
    "gloo",
    rank=int(os.environ["RANK"]),
    world_size=1,  # right: leave both out
    timeout=datetime.timedelta(seconds=20),
)
