# torchrun --nproc-per-node 2 plain-keys-into-wrapper.py
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
state = torch.nn.Linear(2, 2).state_dict()
DDP(torch.nn.Linear(2, 2)).load_state_dict(state)  # right: model.module.load_state_dict(state)
