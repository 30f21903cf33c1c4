# torchrun --nproc-per-node 2 unscale-twice.py
import torch

model = torch.nn.Linear(2, 2)
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler.scale(model(torch.ones(1, 2)).sum()).backward()
scaler.unscale_(optimizer)
scaler.unscale_(optimizer)  # once per step only
