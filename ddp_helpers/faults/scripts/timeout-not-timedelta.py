# torchrun --nproc-per-node 2 timeout-not-timedelta.py
import torch.distributed as dist

dist.init_process_group("gloo", timeout=30)
