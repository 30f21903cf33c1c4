# torchrun --nproc-per-node 2 nan-in-backward.py
import torch

torch.autograd.set_detect_anomaly(True)
x = torch.zeros(1, requires_grad=True)
(x / x).sum().backward()  # 0 / 0
