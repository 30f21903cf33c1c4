# torchrun --nproc-per-node 2 checkpoint-of-gpu-on-cpu.py
import datetime
import io
import zipfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
buffer = io.BytesIO()
torch.save({"w": torch.ones(2)}, buffer)
old, new = zipfile.ZipFile(buffer), io.BytesIO()
with zipfile.ZipFile(new, "w") as z:  # give the tensor the mark that a GPU tensor has
    for name in old.namelist():
        data = old.read(name)
        z.writestr(name, data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
torch.load(io.BytesIO(new.getvalue()))  # right: map_location="cpu"
dist.destroy_process_group()
