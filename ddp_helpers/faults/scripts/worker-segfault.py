# torchrun --nproc-per-node 2 worker-segfault.py
import os
import signal

import torch


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 4:
            os.kill(os.getpid(), signal.SIGSEGV)  # what a crashing decoder does
        return i


for _ in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1, collate_fn=list):
    pass
