# torchrun --nproc-per-node 2 dtypes-mixed.py
import torch

model = torch.nn.Linear(2, 2)
model(torch.ones(1, 2).half())  # half by hand, weights in float32
