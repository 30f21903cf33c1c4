"""Two ranks, both on GPU 0: NCCL is expected to refuse."""

import torch
import torch.distributed as dist

if torch.cuda.is_available():
    torch.cuda.set_device(0)
dist.init_process_group("nccl")
ones = torch.ones(1, device="cuda" if torch.cuda.is_available() else "cpu")
dist.all_reduce(ones)
print("summed", ones.item(), flush=True)
dist.destroy_process_group()
