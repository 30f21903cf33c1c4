# torchrun --nproc-per-node 2 nccl-without-gpu.py
import torch.distributed as dist

dist.init_process_group("nccl")
