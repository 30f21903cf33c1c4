# torchrun --nproc-per-node 2 optimizer-state-forgotten.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()


def make(weight):
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(weight)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


model, optimizer = make(0.0)
train(model, optimizer, 2)
resumed, fresh = make(model.weight.item())  # weights only
train(model, optimizer, 2)
train(resumed, fresh, 2)
print(f"rank {rank}: wrong={resumed.weight.item():.4f} right={model.weight.item():.4f}")
dist.barrier()
dist.destroy_process_group()
