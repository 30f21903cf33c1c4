# torchrun --nproc-per-node 2 weights-only.py
import argparse
import datetime
import pathlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
path = pathlib.Path(__file__).with_name("weights_only.pt")
if dist.get_rank() == 0:
    torch.save({"args": argparse.Namespace(lr=0.1)}, path)
dist.barrier()
torch.load(path)
