# torchrun --nproc-per-node 2 worker-bus-error.py
import datetime
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 4 and rank == 1:
            os.kill(os.getpid(), signal.SIGBUS)  # what a full /dev/shm gives
        return i


for _ in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1, collate_fn=list):
    pass
dist.barrier()
dist.destroy_process_group()
