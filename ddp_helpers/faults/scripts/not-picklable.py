# torchrun --nproc-per-node 1 not-picklable.py
import threading

import torch.multiprocessing as mp


def train(rank, lock):
    print("never reached")


if __name__ == "__main__":
    mp.spawn(train, args=(threading.Lock(),), nprocs=2)
