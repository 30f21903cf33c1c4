# torchrun --nproc-per-node 2 port-taken.py
import os
import socket

import torch.distributed as dist

if os.environ["RANK"] == "0":
    with socket.create_server(("127.0.0.1", 0)) as held:  # another program has the port
        os.environ["MASTER_PORT"] = str(held.getsockname()[1])
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
        dist.init_process_group("gloo")
