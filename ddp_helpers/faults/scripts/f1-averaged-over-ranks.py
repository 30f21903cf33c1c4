# torchrun --nproc-per-node 2 f1-averaged-over-ranks.py
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
tp, fp, fn = [8.0, 0.0, 0.0] if rank == 0 else [1.0, 0.0, 7.0]
f1 = torch.tensor([2 * tp / (2 * tp + fp + fn)])
dist.all_reduce(f1, dist.ReduceOp.AVG)
counts = torch.tensor([tp, fp, fn])
dist.all_reduce(counts)
tp, fp, fn = counts.tolist()
print(f"rank {rank}: F1 wrong={f1.item():.4f} right={2 * tp / (2 * tp + fp + fn):.4f}")
dist.destroy_process_group()
