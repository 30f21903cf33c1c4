# torchrun --nproc-per-node 2 same-size-other-shape.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
x = torch.arange(6.0).reshape(2, 3)
if dist.get_rank() == 1:
    x = x.T.contiguous()  # the same numbers, as (3, 2)
dist.all_reduce(x)
print(f"x[0][1] wrong={x[0, 1].item()} right=2.0")
dist.destroy_process_group()
