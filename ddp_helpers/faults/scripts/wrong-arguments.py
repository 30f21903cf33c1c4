# torchrun --nproc-per-node 2 wrong-arguments.py --lr fast
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print(parser.parse_args())
