# torchrun --nproc-per-node 2 no-init.py
import torch
import torch.distributed as dist

x = torch.ones(1)
dist.all_reduce(x)  # no init_process_group before it
