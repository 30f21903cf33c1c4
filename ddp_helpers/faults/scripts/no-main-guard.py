# torchrun --nproc-per-node 1 no-main-guard.py
import multiprocessing
import sys


def work():
    print("working")


child = multiprocessing.get_context("spawn").Process(target=work)
child.start()  # right: under  if __name__ == "__main__":
child.join()
sys.exit(child.exitcode)
