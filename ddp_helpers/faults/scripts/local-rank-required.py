# torchrun --nproc-per-node 2 local-rank-required.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, required=True)  # torchrun does not pass it
args = parser.parse_args()
