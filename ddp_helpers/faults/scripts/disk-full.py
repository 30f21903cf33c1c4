# torchrun --nproc-per-node 2 disk-full.py
with open("/dev/full", "w", encoding="utf-8") as checkpoint:  # Linux's own full disk
    checkpoint.write("weights")
