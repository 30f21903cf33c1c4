# torchrun --nproc-per-node 2 gloo-full-mesh.py
import datetime
import os
import pathlib
import shutil

import torch.distributed as dist

rank = int(os.environ["RANK"])
folder = pathlib.Path(__file__).resolve().parent
first, second = folder / f"init_{os.environ['MASTER_PORT']}", folder / f"init_of_rank{rank}"


def join(file, seconds):
    timeout = datetime.timedelta(seconds=seconds)
    dist.init_process_group("gloo", init_method=file.as_uri(), rank=rank, world_size=2, timeout=timeout)


join(first, 20)
shutil.copy(first, second)  # what is left after a crash: the addresses of the first run
dist.barrier()
dist.destroy_process_group()
join(second, 1)
