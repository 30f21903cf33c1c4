# torchrun --nproc-per-node 2 folder-made-twice.py
import os
import pathlib

import torch.distributed as dist

dist.init_process_group("gloo")
folder = pathlib.Path(__file__).with_name("epoch_3")
if dist.get_rank() == 0 and folder.exists():
    folder.rmdir()
dist.barrier()
os.mkdir(folder)  # every rank; right: rank 0 only, then dist.barrier()
dist.barrier()
dist.destroy_process_group()
