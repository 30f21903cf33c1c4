# torchrun --nproc-per-node 2 weights-only.py
import argparse
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
if rank == 0:
    torch.save({"args": argparse.Namespace(lr=0.1)}, "weights_only.pt")
dist.barrier()
torch.load("weights_only.pt")
