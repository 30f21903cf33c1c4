# torchrun --nproc-per-node 2 no-rank-zero.py
import datetime
import os

import torch.distributed as dist

if os.environ["RANK"] == "1":  # rank 0 never starts
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) % 20000 + 30000)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1))
