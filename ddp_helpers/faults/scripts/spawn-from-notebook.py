# torchrun --nproc-per-node 1 spawn-from-notebook.py
import torch.multiprocessing as mp

if __name__ == "__main__":
    mp.spawn(lambda rank: print(rank), nprocs=2)  # as a function typed in a cell
