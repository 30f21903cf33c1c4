# torchrun --nproc-per-node 2 mismatch-detail.py
import datetime

import torch
import torch.distributed as dist

dist.set_debug_level(
    dist.DebugLevel.DETAIL
)  # as TORCH_DISTRIBUTED_DEBUG=DETAIL; raw collectives only, DDP crashes under it
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
dist.all_reduce(torch.ones(4 if dist.get_rank() == 0 else 6))
