# torchrun --nproc-per-node 2 master-hostname-unresolved.py
import datetime
import os

import torch.distributed as dist

os.environ["MASTER_ADDR"] = "node-that-does-not-exist.invalid"
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
os.environ["RANK"] = "1"  # as on the second node
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1))
