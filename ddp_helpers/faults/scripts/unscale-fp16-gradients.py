# torchrun --nproc-per-node 2 unscale-fp16-gradients.py
import torch

model = torch.nn.Linear(2, 2).half()  # right: keep the weights in float32
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler.scale(model(torch.ones(1, 2).half()).sum()).backward()
scaler.step(optimizer)
