# torchrun --nproc-per-node 2 scheduler-before-optimizer.py
import torch

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
scheduler.step()  # also when the scaler skipped the first step
optimizer.step()
