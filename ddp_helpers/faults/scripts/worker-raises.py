# torchrun --nproc-per-node 2 worker-raises.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.zeros(2 if i != 3 else 3)


for _ in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1):
    pass
dist.destroy_process_group()
