# torchrun --nproc-per-node 2 sampler-rank-invalid.py
import datetime

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
DistributedSampler(list(range(10)), num_replicas=1, rank=rank)  # one node's numbers, world size 2
dist.barrier()
dist.destroy_process_group()
