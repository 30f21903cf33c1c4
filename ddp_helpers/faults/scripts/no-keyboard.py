# torchrun --nproc-per-node 2 no-keyboard.py
batch_size = int(input("batch size? "))
