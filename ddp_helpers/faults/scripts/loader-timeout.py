# torchrun --nproc-per-node 2 loader-timeout.py
import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        time.sleep(1.5)
        return i


next(iter(torch.utils.data.DataLoader(Data(), num_workers=1, timeout=0.5)))
dist.destroy_process_group()
