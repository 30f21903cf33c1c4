# torchrun --nproc-per-node 2 backend-misspelled.py
import torch.distributed as dist

dist.init_process_group("nnccl")
