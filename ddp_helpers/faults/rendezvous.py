"""How processes find each other: environment, master, store, gloo's interfaces."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="port-taken",
        see=(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
            "address. port: …, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
        means="Another program, an old run, or a second process with RANK=0 already listens on the master's port.",
        sure="`ss -ltnp | grep :PORT` names the holder.",
        cure="Leave --master-port out: one node takes a free port. Else end the old run, or choose another port.",
        lesson="00",
        patterns=(
            "server socket has failed to (?:listen|bind).*(?:EADDRINUSE|[Aa]ddress already in use)",
            r"(?:EADDRINUSE|(?:Errno|errno:?) ?98\b|^RuntimeError: )[^\n]{0,40}[Aa]ddress already in use",
            "code: -98, name: EADDRINUSE",
        ),
    ),
    Fault(
        id="env-missing",
        see=(
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
            "RANK expected, but not set"
        ),
        means="Nobody set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: the script was started without torchrun.",
        sure="print(os.environ.get('RANK')) before the call shows None.",
        cure="Start it with torchrun (in a notebook: with %%torchrun). Do not set RANK by hand.",
        lesson="01",
        patterns=(
            "environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
            "^KeyError: '(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
        ),
    ),
    Fault(
        id="init-twice",
        see="ValueError: trying to initialize the default process group twice!",
        means="init_process_group ran a second time in the same process, often because a cell was run again.",
        sure="dist.is_initialized() is True before the call.",
        cure=(
            "Call it once; dist.destroy_process_group() before a second init, or start the ranks as fresh processes."
        ),
        lesson="01",
        patterns=("trying to initialize the default process group twice!",),
    ),
    Fault(
        id="no-init",
        see=(
            "ValueError: Default process group has not been initialized, please make sure to call init_process_group."
        ),
        means=(
            "A collective, DDP(…) or DistributedSampler(…) came before init_process_group, or after "
            "destroy_process_group."
        ),
        sure="dist.is_initialized() is False at that line.",
        cure="Call init_process_group first; destroy only at the very end.",
        lesson="01",
        patterns=(
            "Default process group has not been initialized, please (?:make sure to )?call init_process_group",
            "Default process group is not initialized",
        ),
    ),
    Fault(
        id="world-size-too-large",
        kind="wait",
        see=(
            "torch.distributed.DistStoreError: Timed out after 6 seconds waiting for clients. 2/3 clients "
            "joined.\n"
            "torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0"
        ),
        means=(
            "Fewer processes came than the world size says: some did not start, the number is wrong, or they came "
            "too late for the timeout."
        ),
        sure=("The message says how many joined. Count the processes on each node against nnodes × nproc-per-node."),
        cure=(
            "Let torchrun set rank and world size, and give init_process_group neither. Start every node. If one is "
            "only slow: a longer timeout, or the long work before torchrun starts."
        ),
        lesson="01",
        patterns=(
            r"waiting for clients\. \d+/\d+ clients joined",
            r"wait timeout after \d+ms, keys: (?!/default_pg/0//[1-9])",
            r"store based barrier on rank: ?\d+",
            r"^(?:RuntimeError|torch\.distributed\.DistStoreError|TimeoutError): Socket Timeout",
            "Timeout waiting for key: default_pg",
        ),
    ),
    Fault(
        id="no-rank-zero",
        kind="wait",
        see=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 4000ms while trying to "
            "connect to (127.0.0.1, 29500)."
        ),
        means=(
            "Nobody listens at MASTER_ADDR:MASTER_PORT: rank 0 has not started, has died, or address or port "
            "is wrong or blocked."
        ),
        sure=(
            "Run `nc -vz ADDRESS PORT` on the node that complains while rank 0 runs, and `ss -ltn` on rank 0's "
            "node. Look at rank 0's own log first."
        ),
        cure="Start node 0, give all nodes its reachable address, open the port.",
        lesson="12",
        patterns=(r"client socket has timed out after \d+m?s while trying to connect to",),
    ),
    Fault(
        id="timeout-not-timedelta",
        see="TypeError: Expected timeout argument to be of type datetime.timedelta, got 30",
        means="timeout takes a timedelta, not a number.",
        sure="Read the argument in the failing line.",
        cure="timeout=datetime.timedelta(seconds=30).",
        lesson="01",
        patterns=(r"Expected timeout argument to be of type datetime\.timedelta",),
    ),
    Fault(
        id="master-hostname-unresolved",
        kind="wait",
        see=(
            "[W socket.cpp:764] [c10d] The IPv6 network addresses of (node-7, 29500) cannot be retrieved (gai "
            "error: -2 - Name or service not known)."
        ),
        means=(
            "The master's host name means nothing on this node. (The line alone is harmless when the "
            "connection is made after all.)"
        ),
        sure="`getent hosts NAME` on the node that complains: empty.",
        cure=(
            "Use the address, or a name that all nodes resolve (DNS or /etc/hosts). In Slurm: scontrol show hostnames."
        ),
        lesson="12",
        patterns=(
            r"network addresses of \(.*\) cannot be retrieved \(gai error: -?\d+ - ",
            r"gaierror: \[Errno -\d+\] (?:Name or service not known|Temporary failure in name resolution)",
        ),
        also=("client socket has timed out|C10d store has failed|gaierror|DistNetworkError",),
        source="OFA-Sys/OFA#307; hpcaitech/ColossalAI#2841",
    ),
    Fault(
        id="gloo-interface-wrong",
        see=(
            "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find "
            "address for: eth9"
        ),
        means="GLOO_SOCKET_IFNAME names an interface that this node does not have, or that has no address.",
        sure="`ip -br addr` on each node: the name must be there.",
        cure=(
            "Set the name of one real interface (it may differ from node to node), or unset the variable. A "
            "list such as ^docker0 is NCCL's syntax, not gloo's."
        ),
        lesson="12",
        patterns=(r"(?:ifa|rp) != nullptr\. Unable to find (?:address|interface) for: ",),
        source="Megvii-BaseDetection/YOLOX#139",
    ),
    Fault(
        id="gloo-full-mesh",
        kind="wait",
        see=(
            "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] timed out "
            "connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:12345"
        ),
        means=(
            "The ranks found the store, but not each other: the addresses in it are dead (an earlier run's "
            "init file, or a restart), or wrong (a host name that resolves to 127.0.0.1 on several nodes), or "
            "a firewall stands between."
        ),
        sure=(
            "remote=[127.0.0.1] with ranks on two nodes: a wrong name. A file:// init method: is the file "
            "older than the run? With --max-restarts: only from the second attempt on? Otherwise test a port "
            "above 30000 with nc."
        ),
        cure=(
            "Set GLOO_SOCKET_IFNAME to the network's interface on every node; delete the init file before each "
            "run; with --max-restarts set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; open the ports between the "
            "nodes."
        ),
        lesson="12",
        patterns=(
            "connectFullMesh failed with .*(?:timed out connecting|SO_ERROR|Connect timeout)",
            "connectFullMesh failed with .*(?:Connection timed out|Connection refused|No route to host)",
        ),
        source="wenet-e2e/wenet#959",
    ),
    Fault(
        id="backend-misspelled",
        see="AssertionError: Unknown backend type nnccl",
        means="The backend's name is misspelled, or this torch was built without it.",
        sure="dist.is_backend_available(name).",
        cure="'nccl' on GPUs, 'gloo' on CPU.",
        lesson="02",
        patterns=("Unknown (c10d )?backend type",),
        source="torch/distributed/distributed_c10d.py _new_process_group_helper",
    ),
    Fault(
        id="world-size-is-node-count",
        see="RuntimeError: [enforce fail at gloo/context.cc:23] rank < size. 1 vs 1",
        means=(
            "world_size was given by hand and is smaller than the number of processes, for instance the number "
            "of nodes."
        ),
        sure="Print RANK and WORLD_SIZE from os.environ on each rank.",
        cure="Leave rank and world_size out under torchrun.",
        lesson="01",
        patterns=(r"context\.cc:\d+\] rank < size\. \d+ vs \d+",),
    ),
)
