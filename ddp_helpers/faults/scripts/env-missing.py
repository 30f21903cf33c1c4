# torchrun --nproc-per-node 2 env-missing.py
import os

import torch.distributed as dist

del os.environ["RANK"]  # as in a plain "python script.py" or in a notebook cell
dist.init_process_group("gloo")
