# torchrun --nproc-per-node 2 host-memory.py
import torch

torch.empty(10**15, dtype=torch.uint8)  # far more than there is
