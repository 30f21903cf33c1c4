# torchrun --nproc-per-node 2 worker-exited.py
import datetime
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 4:
            os._exit(1)  # a library that calls exit
        return i


for _ in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1, collate_fn=list, timeout=20):
    pass
dist.destroy_process_group()
