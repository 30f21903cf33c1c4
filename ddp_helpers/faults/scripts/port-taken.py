# torchrun --nproc-per-node 2 port-taken.py
import datetime
import os
import socket
import time

import torch.distributed as dist

if os.environ["RANK"] == "0":
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 29517))
    held.listen()
else:
    time.sleep(1)
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
dist.init_process_group(
    "gloo", init_method="tcp://127.0.0.1:29517", rank=0, world_size=2, timeout=datetime.timedelta(seconds=20)
)
