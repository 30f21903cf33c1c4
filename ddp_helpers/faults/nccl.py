"""What NCCL says, and what it means."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="nccl-without-gpu",
        see="ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        means="The backend is nccl and this process sees no GPU.",
        sure="Print torch.cuda.is_available() and CUDA_VISIBLE_DEVICES.",
        cure="'gloo' on the CPU; or make the GPUs visible.",
        lesson="01",
        patterns=("ProcessGroupNCCL is only supported with GPUs, no GPUs found!",),
    ),
    Fault(
        id="nccl-watchdog-timeout",
        kind="wait",
        see=(
            "[rank0]:[E ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 "
            "milliseconds before timing out."
        ),
        means=(
            "A collective did not end within the timeout: one rank did not come to it. It made other calls, "
            "was busy, or had died."
        ),
        sure=(
            "Compare SeqNum and 'last completed' over the ranks: the rank with the lowest number is behind, "
            "and a rank that says nothing at all is the first suspect. Its traceback (py-spy dump) or the "
            "flight recorder shows where it is."
        ),
        cure="Mend the rank that is behind. Raise the timeout only for work that truly takes so long.",
        lesson="09",
        needs="gpu",
        patterns=("Watchdog caught collective operation timeout",),
        source="hiyouga/LlamaFactory#7396; pytorch/pytorch#118369; XPixelGroup/BasicSR#737",
    ),
    Fault(
        id="nccl-ranks-differ",
        kind="wait",
        see=(
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
            "NumelIn=100)\n"
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=BROADCAST, "
            "NumelIn=1)"
        ),
        means=(
            "The ranks wait in different collectives, or with tensors of different size: their calls are not the same."
        ),
        sure="The same SeqNum has another OpType or another Numel on two ranks.",
        cure=(
            "Make the same calls with the same sizes on all ranks. Try the script on CPU with gloo: the logic "
            "is the same, and it fails faster."
        ),
        lesson="09",
        needs="gpu",
        same_message=("nccl-watchdog-timeout",),
    ),
    Fault(
        id="nccl-p2p-hang",
        kind="wait",
        see=(
            "All ranks stop in the first collective with all GPUs at 100 %, and after the timeout each says: "
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)"
        ),
        means=(
            "All ranks came to the same collective, the first one, and it does not end: the GPUs cannot reach "
            "each other, or a rank took the wrong GPU. Direct traffic (P2P) is broken: a driver that does not "
            "support it on these cards, IOMMU or ACS, or a virtual machine."
        ),
        sure=(
            "It runs with NCCL_P2P_DISABLE=1. If not: does each rank print another torch.cuda.current_device()? Has "
            "the log a line of every rank? nvidia-smi topo -m shows the links; `lspci -vvv | grep ACSCtl` "
            "shows SrcValid+ where ACS is on."
        ),
        cure=(
            "torch.cuda.set_device(LOCAL_RANK) and init_process_group(device_id=…). For the links: "
            "NCCL_P2P_DISABLE=1 for now, then a newer driver, ACS off or iommu=pt."
        ),
        lesson="09",
        needs="gpu",
        patterns=(
            "In many cases this error occurs when ACS is enabled",
            "peer access is not supported between these two devices",
        ),
        same_message=("nccl-watchdog-timeout",),
        source="NVIDIA/nccl#631; NVIDIA/nccl-tests#117; NCCL docs, Troubleshooting",
    ),
    Fault(
        id="nccl-heartbeat",
        kind="wait",
        see=(
            "[rank0]:[F ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL's watchdog got "
            "stuck for 480 seconds without making progress in monitoring enqueued collectives."
        ),
        means=(
            "NCCL's own monitor found the process stuck: another rank has died in the middle of a collective, "
            "or a CUDA call does not return."
        ),
        sure="Look for the first error of another rank, before this time.",
        cure="Mend that rank. If there is none: driver and network (dmesg | grep -i xid).",
        lesson="09",
        needs="gpu",
        patterns=(
            r"watchdog got stuck for \d+ seconds",
            "[Hh]eartbeat monitor timed out",
            "watchdog hang",
        ),
    ),
    Fault(
        id="nccl-unique-id",
        kind="wait",
        see=(
            "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving "
            "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket "
            "Timeout"
        ),
        means=(
            "This rank wanted to begin its first NCCL collective, and rank 0 never did: rank 0 is elsewhere, "
            "or has died."
        ),
        sure="Look at rank 0's log: what does it do at this time?",
        cure="Let rank 0 come to the same collective; end long work before it, or a longer timeout.",
        lesson="09",
        needs="gpu",
        patterns=(r"retrieving ncclUniqueId from \[\d+\] via c10d key-value store",),
    ),
    Fault(
        id="nccl-watchdog-follow-up",
        kind="victim",
        see="To avoid data inconsistency, we are taking the entire process down.",
        means="The watchdog ends the process after an earlier error. This is not the cause.",
        sure="Look above for the first 'Watchdog caught' or the first CUDA error.",
        cure="Mend that.",
        lesson="09",
        needs="gpu",
        patterns=(
            "To avoid data inconsistency, we are taking the entire process down",
            "Some NCCL operations have failed or timed out",
            "failure detected by watchdog at work sequence id",
        ),
        source="hiyouga/LlamaFactory#7396; torch/lib/libtorch_cuda (text)",
    ),
    Fault(
        id="nccl-remote-error",
        kind="victim",
        see=("ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."),
        means="Another rank has gone, or the network between them failed.",
        sure="Did another rank fail before? Then that is the cause. Otherwise look at the NCCL WARN lines.",
        cure="Mend the other rank, or the network.",
        lesson="09",
        needs="gpu",
        patterns=(
            "ncclRemoteError: A call failed possibly due to",
            "(?:Connection closed by remote peer|remote process exited or there was a network error)",
            "NCCL communicator was aborted on rank",
            "Socket recv failed while polling",
        ),
        source="pytorch/pytorch#122571; NVIDIA/nccl#1232",
    ),
    Fault(
        id="nccl-system-error",
        kind="general",
        see=("ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."),
        means=(
            "A system call failed inside NCCL: network, shared memory, or a limit. What it was stands under "
            "'Last error' and in the NCCL WARN lines."
        ),
        sure="Run with NCCL_DEBUG=INFO and read the first line with WARN.",
        cure="By that line: no interface, connection refused, /dev/shm too small, locked memory.",
        lesson="09",
        needs="gpu",
        patterns=(
            "ncclSystemError: System call",
            "NCCL [Ee]rror.*unhandled system error",
        ),
        source="NVIDIA/nccl#975; NVIDIA/nccl#207; vllm-project/vllm#6574",
    ),
    Fault(
        id="nccl-cuda-error",
        kind="general",
        see="ncclUnhandledCudaError: Call to CUDA function failed.",
        means=(
            "A CUDA call failed inside NCCL: out of memory, an earlier kernel's error, a wrong device, a "
            "driver that does not fit, or a sick GPU."
        ),
        sure=(
            "Read 'Cuda failure' in the NCCL WARN lines (NCCL_DEBUG=WARN); CUDA_LAUNCH_BLOCKING=1; dmesg | grep -i xid."
        ),
        cure="By the text: free memory, set_device first, matching driver; else another GPU.",
        lesson="09",
        needs="gpu",
        patterns=(
            "ncclUnhandledCudaError: Call to CUDA function failed",
            "NCCL WARN Cuda failure",
            "NCCL [Ee]rror.*unhandled cuda error",
        ),
        source="NVIDIA/nccl#1410; pytorch/pytorch#170045; NVIDIA/nccl#1935",
    ),
    Fault(
        id="nccl-internal-error",
        kind="general",
        see="ncclInternalError: Internal check failed.",
        means=(
            "NCCL met something it did not expect; often another rank's failure, or a network interface that "
            "does not work."
        ),
        sure="Run with NCCL_DEBUG=INFO and read the first line with WARN, on all ranks.",
        cure="By that line.",
        lesson="09",
        needs="gpu",
        patterns=(
            "ncclInternalError: Internal check failed",
            "NCCL [Ee]rror.*internal error",
        ),
    ),
    Fault(
        id="nccl-invalid-usage",
        kind="general",
        see="ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
        means="NCCL refused the call. Most often two ranks use one GPU.",
        sure="Read the line under 'Last error', or run with NCCL_DEBUG=WARN.",
        cure="torch.cuda.set_device(LOCAL_RANK) before anything else; no more ranks than GPUs.",
        lesson="09",
        needs="gpu",
        patterns=(
            "ncclInvalidUsage: This usually reflects invalid usage",
            "NCCL [Ee]rror.*invalid usage",
        ),
        source="NVIDIA/nccl#1241; verl-project/verl#161",
    ),
    Fault(
        id="nccl-duplicate-gpu",
        see="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        means="Two ranks use one GPU: set_device is missing or late, or there are more ranks than GPUs.",
        sure="Print torch.cuda.current_device() and os.environ['CUDA_VISIBLE_DEVICES'] on each rank.",
        cure=(
            "torch.cuda.set_device(LOCAL_RANK) before anything else; no more ranks than GPUs; gloo to try the "
            "logic on one GPU."
        ),
        lesson="01",
        needs="gpu",
        patterns=(
            "Duplicate GPU detected",
            "Multiple Ranks are using the same GPU/Partition",
        ),
        source="Peterande/D-FINE#289; NVIDIA/Megatron-LM#661",
    ),
    Fault(
        id="nccl-no-interface",
        see="NCCL WARN Bootstrap : no socket interface found",
        means="NCCL_SOCKET_IFNAME matches no network interface of this node, or the node has none.",
        sure="Compare `ip -br addr` with NCCL_SOCKET_IFNAME.",
        cure="Unset it, or give the name of an interface that is there (=eth0 exactly, ^docker,lo to leave out).",
        lesson="12",
        needs="gpu",
        patterns=(
            "Bootstrap : no socket interface found",
            "ncclSocketInit: connecting to address .* is neither AF_INET",
            "NET/Socket : no (?:usable )?interface found",
        ),
        source="NVIDIA/nccl#1837; NVIDIA/nccl#210; NVIDIA/nccl#1267; libnccl 2.30.7 (text)",
    ),
    Fault(
        id="nccl-connection-refused",
        see=(
            "NCCL WARN socketPollConnect: connect to 10.0.0.2<45678> returned Connection refused, exceeded "
            "error retry count after 35 attempts"
        ),
        means=(
            "A rank could not reach another: the wrong interface (docker0, virbr0), a firewall, or the other has died."
        ),
        sure=(
            "The address in the message: does it belong to the network between the nodes? `nc -l 12345` there, "
            "`nc ADDR 12345` here."
        ),
        cure=(
            "NCCL_SOCKET_IFNAME=the right interface on all nodes; open all ports between the nodes, as NCCL "
            "takes random ones."
        ),
        lesson="12",
        needs="two nodes",
        patterns=(
            r"connect to \S+ returned .*exceeded error retry count",
            r"[Cc]onnect to \S+<\d+> failed : ",
            r"NCCL WARN .*[Cc]onnect to \S+ failed : ",
            r"NCCL WARN Call to connect (?:to \S+ )?(?:returned|failed|timeout)",
            "socket(?:Start|Poll)Connect: .*(?:refused|No route to host|timed out).*(?:exceeded|failed)",
        ),
        source="pytorch/pytorch#68893; NVIDIA/nccl#697; NVIDIA/nccl-tests#162; libnccl 2.30.7 (text)",
    ),
    Fault(
        id="nccl-ib-completion-error",
        see=(
            "NCCL WARN NET/IB: Got completion from peer 10.0.0.2<45678> with status=IBV_WC_RETRY_EXC_ERR(12) "
            "opcode=0 vendor_err=129"
        ),
        means=(
            "InfiniBand or RoCE gave up: the other side does not answer. A cable, a switch, a wrong GID, or "
            "the peer has died."
        ),
        sure="ibstat; ib_write_bw between the two nodes. Has the peer's log an earlier error?",
        cure=(
            "RoCE: NCCL_IB_GID_INDEX; NCCL_IB_HCA to choose ports; NCCL_IB_TIMEOUT=22; NCCL_IB_DISABLE=1 to "
            "compare over TCP."
        ),
        lesson="12",
        needs="two nodes",
        patterns=(
            r"NET/IB ?: Got completion (?:from peer \S+ )?with (?:status|error)",
            r"IBV_WC_\w+_ERR",
            "Call to ibv_modify_qp failed",
        ),
        source="NVIDIA/nccl#1664; NVIDIA/nccl#1405; NVIDIA/nccl#1814; libnccl 2.30.7 (text)",
    ),
    Fault(
        id="nccl-ib-memlock",
        see="NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        means="The limit for locked memory is too small for InfiniBand.",
        sure="`ulimit -l` inside the job shall say unlimited.",
        cure="docker run --ulimit memlock=-1; limits.conf; in Slurm PropagateResourceLimitsExcept=MEMLOCK.",
        lesson="12",
        needs="container",
        patterns=(r"Call to ibv_(reg_mr\w*|create_cq|create_qp) failed",),
        source="NVIDIA/nccl-tests#206; NVIDIA/nccl#380; NCCL docs, Troubleshooting: InfiniBand",
    ),
    Fault(
        id="nccl-version-mismatch",
        see="NCCL WARN Mismatched NCCL version detected : rank 0 version 22005 rank 8 version 22304",
        means="The nodes have different NCCL versions: their torch or their container image differs.",
        sure="On each node: python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'.",
        cure="The same image or environment on all nodes.",
        lesson="12",
        needs="two nodes",
        patterns=(
            "Mismatched NCCL version detected",
            "NCCL version mismatch with remote peer",
        ),
        source="libnccl 2.30.7 (text); pytorch/pytorch#108212",
    ),
    Fault(
        id="nccl-library-mismatch",
        see="ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister",
        means=(
            "Another libnccl is loaded than the one torch was built for: the system's, one in LD_LIBRARY_PATH, "
            "or one that a later pip install brought."
        ),
        sure=(
            "echo $LD_LIBRARY_PATH; pip list | grep -i nccl; python -c 'import torch; "
            "print(torch.cuda.nccl.version())'."
        ),
        cure="Clear LD_LIBRARY_PATH, and install torch into a fresh environment, which brings its own NCCL.",
        lesson="00",
        needs="gpu",
        patterns=(
            r"undefined symbol: nccl\w+",
            r"NCCL library is (?:too old|not backwards compatible)\. This application was compiled with",
            r"libnccl\.so[.\d]*: (?:cannot open|version)",
        ),
        source="pytorch/pytorch#119932; verl-project/verl#6621",
    ),
    Fault(
        id="nccl-size-mismatch",
        see=(
            "NCCL WARN NET/Socket : peer 10.0.0.2<45678> message truncated : receiving 1048576 bytes instead of 65536."
        ),
        means="The ranks' collectives differ in size or order, or NCCL_* variables differ between nodes.",
        sure="Compare `env | grep NCCL` on all nodes; look at the flight recorder.",
        cure="Equal sizes and order on all ranks; the same environment on all nodes.",
        lesson="09",
        needs="two nodes",
        patterns=(
            "NET/Socket : .*message truncated",
            "NET/IB : .*collective mismatch error",
        ),
        source="NVIDIA/nccl#626; NVIDIA/nccl#268; NVIDIA/nccl#969",
    ),
    Fault(
        id="nccl-barrier-device",
        kind="warning",
        see=(
            "UserWarning: barrier(): using the device under current context. You can specify `device_id` in "
            "`init_process_group` to mute this warning."
        ),
        means=(
            "NCCL guesses the GPU for a barrier. On several nodes or with reordered GPUs the guess is wrong "
            "and it hangs."
        ),
        sure="Print torch.cuda.current_device() on each rank. Where each has its own: the links (nccl-p2p-hang).",
        cure="torch.cuda.set_device(LOCAL_RANK) and init_process_group(device_id=…).",
        lesson="01",
        needs="gpu",
        patterns=(
            "as devices? used by this process (?:is|are) currently unknown",
            "Guessing device ID based on global rank",
            r"barrier\(\): using the device under current context",
        ),
        source=(
            "bmaltais/kohya_ss#2933; FoundationVision/Infinity#76; pytorch/pytorch#124714; "
            "torch/distributed/distributed_c10d.py barrier"
        ),
    ),
    Fault(
        id="nccl-cpu-tensor",
        see="RuntimeError: No backend type associated with device type cpu",
        means="A tensor on the CPU went into a collective of an NCCL group.",
        sure="Print x.device.",
        cure="x.to('cuda') first, or init_process_group('cpu:gloo,cuda:nccl').",
        lesson="02",
        needs="gpu",
        patterns=(
            "No backend type associated with device type",
            "Tensors must be CUDA and dense",
        ),
        source="mistralai/mistral-inference#252; THUDM/SwissArmyTransformer#173; libtorch_cuda (text)",
    ),
)
