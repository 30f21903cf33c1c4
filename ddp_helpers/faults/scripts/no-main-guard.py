# torchrun --nproc-per-node 1 no-main-guard.py
import torch.multiprocessing as mp


def work(rank):
    print(rank)


mp.spawn(work, nprocs=2)  # no  if __name__ == "__main__":
