# torchrun --nproc-per-node 2 world-size-too-large.py
import datetime
import os

import torch.distributed as dist

os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) % 20000 + 30000)
dist.init_process_group("gloo", world_size=3, rank=int(os.environ["RANK"]), timeout=datetime.timedelta(seconds=2))
