# torchrun --nproc-per-node 2 gloo-interface-wrong.py
import datetime
import os

import torch.distributed as dist

os.environ["GLOO_SOCKET_IFNAME"] = "eth9"  # no such interface here
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
