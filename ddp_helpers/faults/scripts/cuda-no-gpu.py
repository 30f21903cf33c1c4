# torchrun --nproc-per-node 2 cuda-no-gpu.py
import torch

torch.ones(1, device="cuda")
