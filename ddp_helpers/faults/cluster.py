"""More than one machine, and Slurm."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="only-one-node-came",
        kind="wait",
        see="torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        means=(
            "torchrun waited for --nnodes nodes, and too few came: not started, another --rdzv-id, or another endpoint."
        ),
        sure="Compare the torchrun line of all nodes: --rdzv-id, --rdzv-endpoint and --nnodes must be the same.",
        cure="Start all nodes within the timeout (10 minutes by default); one shared id such as $SLURM_JOB_ID.",
        lesson="12",
        patterns=("RendezvousTimeoutError",),
        no_script="needs torchrun's own rendezvous, and its timeout",
    ),
    Fault(
        id="endpoint-unreachable",
        kind="wait",
        see=(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
            "store has failed. See inner exception for details."
        ),
        means=(
            "torchrun cannot reach --rdzv-endpoint: node 0 is not up, the address is wrong, a firewall stands "
            "between, or no node takes itself for that host. The script never ran."
        ),
        sure=(
            "`nc -vz HOST PORT` from the failing node. Does the endpoint's name resolve to an address of node "
            "0, as `hostname -I` shows there?"
        ),
        cure=(
            "The reachable address of node 0 on all nodes; --rdzv-conf is_host=1 on node 0 and is_host=0 "
            "elsewhere; open the port."
        ),
        lesson="12",
        patterns=("RendezvousConnectionError: The connection to the C10d store has failed",),
        no_script="needs torchrun's own rendezvous",
        source="pytorch/pytorch#107021; pytorch/pytorch#69197; pytorch/pytorch#73656; pytorch/pytorch#121944",
    ),
    Fault(
        id="rendezvous-closed",
        kind="victim",
        see="torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        means="Another node had already ended the job: it finished, or it failed. This node is not the cause.",
        sure="Look at the other nodes' logs: which ended first?",
        cure="Mend that node.",
        lesson="12",
        needs="two nodes",
        patterns=(
            "RendezvousClosedError",
            "Rendezvous.*(?:is closed|has been closed)",
        ),
    ),
    Fault(
        id="store-gone",
        kind="victim",
        see="[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=76): Connection reset by peer",
        means=(
            "The store, which lives in rank 0 or on node 0, has gone: that process has ended. This line is not "
            "the cause."
        ),
        sure="Look at rank 0's, or node 0's, log before this time.",
        cure="Mend what ended there.",
        lesson="09",
        needs="two nodes",
        patterns=(
            r"TCPStore\.cpp:\d+\].*(?:recvValue|sendBytes|recvVector|failed)",
            'Failed to check the "should dump" flag',
            "failed to recv, got 0 bytes",
            r"Connection was likely closed\. Did the remote server shutdown or crash",
            "DistNetworkError: .*(?:Connection reset by peer|Broken pipe)",
            r"store->get\('\d+'\) got error: (?:Connection reset|Broken pipe)",
        ),
    ),
    Fault(
        id="slurm-out-of-memory",
        see=(
            "slurmstepd: error: Detected 1 oom_kill event in StepId=118207.0. Some of the step tasks have been "
            "OOM Killed."
        ),
        means="The job used more memory than it asked for, and Slurm ended a task.",
        sure="sacct -j JOB -o MaxRSS,ReqMem.",
        cure="Ask for more (--mem or --mem-per-cpu); fewer workers, one copy of the data.",
        lesson="12",
        needs="two nodes",
        patterns=(
            "oom[-_]kill event",
            r"task[s]? [\d,-]+: Out Of Memory",
            "OOM Killed",
        ),
    ),
    Fault(
        id="slurm-time-limit",
        kind="stop",
        see="slurmstepd: error: *** JOB 118207 ON node-0 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***",
        means="The job's time was up (or another job with a higher priority took its nodes).",
        sure="sacct -j JOB -o State,Elapsed,Timelimit.",
        cure="A longer --time; save checkpoints; --signal=B:USR1@120 and --requeue.",
        lesson="12",
        needs="two nodes",
        patterns=("CANCELLED AT .*DUE TO (?:TIME LIMIT|PREEMPTION)",),
    ),
    Fault(
        id="node-failure",
        see="srun: error: Node failure on node-7",
        means="A machine of the job went down.",
        sure="sinfo -R; ask the administrator.",
        cure="Start again without this node (--exclude), from the last checkpoint.",
        lesson="12",
        needs="two nodes",
        patterns=(
            r"Node failure on \S+",
            "DUE TO NODE FAILURE",
        ),
    ),
    Fault(
        id="slurm-cancelled",
        kind="end",
        see="slurmstepd: error: *** STEP 118207.0 ON node-0 CANCELLED AT 2026-01-01T10:00:00 ***",
        means="Slurm ended the job: somebody called scancel, or one task failed and srun ended the others.",
        sure="Look for the first 'srun: error' line and that task's output; sacct -j JOB -o State.",
        cure="By that line.",
        lesson="12",
        needs="two nodes",
        patterns=(r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT [^*D]*\*\*\*",),
    ),
)
