# torchrun --nproc-per-node 2 torn-checkpoint.py
import datetime
import os
import pathlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
path = pathlib.Path(__file__).with_name("torn.pt")
if dist.get_rank() == 0:
    torch.save({"w": torch.ones(100_000)}, path)
    os.truncate(path, 200_000)  # a kill, a full disk, or a second writer
dist.barrier()
torch.load(path)
dist.destroy_process_group()
