# torchrun --nproc-per-node 2 no-inf-checks.py
import torch

model, other = torch.nn.Linear(2, 2), torch.ones(1, requires_grad=True)
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler.scale(other.sum()).backward()  # the loss does not reach the optimizer's parameters
scaler.step(optimizer)
