# torchrun --nproc-per-node 2 dataparallel-on-cpu.py
import torch

model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
model(torch.ones(4, 2))
print(f"device_ids={model.device_ids} keys={list(model.state_dict())} replicas wrong={len(model.device_ids)} right=2")
