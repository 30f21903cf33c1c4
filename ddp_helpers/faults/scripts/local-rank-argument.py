# torchrun --nproc-per-node 2 local-rank-argument.py --local-rank=0
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)  # launch passes --local-rank, with a dash
print(parser.parse_args())
