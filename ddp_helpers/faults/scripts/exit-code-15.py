# torchrun --nproc-per-node 2 exit-code-15.py
import datetime
import time

import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
if dist.get_rank() == 1:
    raise ValueError("the true cause")
time.sleep(20)  # innocent; torchrun stops it with SIGTERM: -15
