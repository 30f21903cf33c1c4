# torchrun --nproc-per-node 2 load-before-save-is-done.py
import datetime
import pathlib
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
path = pathlib.Path(__file__).with_name("late.pt")
if rank == 0:
    path.unlink(missing_ok=True)
dist.barrier()
if rank == 0:
    time.sleep(1)
    torch.save({"w": torch.ones(3)}, path)
torch.load(path)  # right: dist.barrier() before this line
dist.destroy_process_group()
