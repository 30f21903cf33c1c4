"""Collectives that ranks do not make alike, or with wrong arguments."""

from __future__ import annotations

from .fault import GLOO_TIMED_OUT, Fault

FAULTS = (
    Fault(
        id="collective-on-one-rank",
        kind="wait",
        see=(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv "
            "operation to complete"
        ),
        means=(
            "This rank waits in a collective that another rank does not reach: `if rank == 0:` around it, an "
            "early end of a loop, or a rank that is busy with something long."
        ),
        sure=(
            "Find out where the absent rank is: py-spy dump, faulthandler, the flight recorder; "
            "dist.monitored_barrier names it."
        ),
        cure=(
            "All ranks make the same collective calls in the same order. If a rank is only slow: a longer "
            "timeout, or the long work before torchrun starts (init_process_group waits no longer)."
        ),
        lesson="09",
        patterns=GLOO_TIMED_OUT,
    ),
    Fault(
        id="barrier-skipped",
        kind="wait",
        see=(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv "
            "operation to complete   (the traceback ends in barrier)"
        ),
        means=(
            "Some ranks stand in dist.barrier() and another never comes: the barrier is inside an if, or that "
            "rank is busy (a download, an evaluation)."
        ),
        sure="The traceback ends in barrier. Where is the rank that printed no such error?",
        cure=(
            "Put the barrier where every rank passes; give init_process_group a longer timeout if a rank only "
            "needs longer."
        ),
        lesson="09",
        patterns=GLOO_TIMED_OUT,
        where=(r"in (?:monitored_)?barrier\n",),
        same_message=("collective-on-one-rank",),
        source="pytorch/pytorch#54059",
    ),
    Fault(
        id="collective-order",
        kind="wait",
        see=(
            "rank 0: RuntimeError: Timed out waiting 4000ms for send operation to complete   (in broadcast)\n"
            "rank 1: RuntimeError: Timed out waiting 4000ms for send operation to complete   (in all_reduce)"
        ),
        means=(
            "The ranks wait in different collectives: they make the same calls in a different order, or one rank "
            "leaves out a call."
        ),
        sure="The tracebacks of two ranks end in different collectives, or in different lines of the script.",
        cure="One order on all ranks: it must not depend on the rank, on a set, or on the order of files.",
        lesson="09",
        same_message=("collective-on-one-rank",),
    ),
    Fault(
        id="peer-left",
        kind="victim",
        see=(
            "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:18336. This "
            "is typically caused by a remote worker crashing."
        ),
        means="Another rank has ended: it failed, or it left the loop early. This line is not the cause.",
        sure="Look at the other ranks: which ended first, and with which exit code?",
        cure="Mend the rank that ended first.",
        lesson="09",
        patterns=(
            r"pair\.(?:cc|h):\d+\] (?:Connection (?:closed|reset) by peer|Read error|Write error|Socket closed)",
            "caused by a remote worker (?:crashing|hanging)",
            "connectFullMesh failed with .*(?:Connection closed by peer|Connection reset by peer)",
            r"\[gloo.*(?:Broken pipe|Socket closed)",
        ),
        no_script="see one-rank-leaves-early",
        source="Megvii-BaseDetection/YOLOX#702",
    ),
    Fault(
        id="one-rank-leaves-early",
        kind="wait",
        see=(
            "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:18336   (and "
            "the other rank's exit code is 0)"
        ),
        means=(
            "A rank ended without an error while the others still needed it: it had no data left, broke out of "
            "the loop, or called sys.exit(0)."
        ),
        sure="One rank's exit code is 0, and no other rank raised anything but this.",
        cure=(
            "All ranks must make the same collective calls: decide together (all_reduce a flag), give every "
            "rank as many batches, or use Join."
        ),
        lesson="09",
        same_message=("peer-left",),
    ),
    Fault(
        id="shape-mismatch",
        see=(
            "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
            "  what():  [enforce fail at gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes. 8 vs "
            "4. Received data size doesn't match expected size. Is there a distributed collective mismatch in "
            "your code?"
        ),
        means=(
            "The ranks gave one collective tensors of different size or type, or they are out of step with "
            "each other. Only the rank that received too much aborts."
        ),
        sure=(
            "Print shape and dtype on each rank before the call. Or TORCH_DISTRIBUTED_DEBUG=DETAIL: for raw "
            "collectives only, since DDP crashes under it with gloo."
        ),
        cure="Same shape on all ranks; gather lengths first and pad, or use all_gather_object.",
        lesson="09",
        patterns=(r"op\.preamble\.length <= op\.nbytes",),
    ),
    Fault(
        id="mismatch-detail",
        see=(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
            "CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[4]), but Rank 1 is running collective: "
            "CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[6])"
        ),
        means=(
            "torch compared the collectives first, because the debug level asks for it: their order, shape or "
            "dtype differs between ranks."
        ),
        sure="The message names both calls and the difference.",
        cure="Make the calls equal on all ranks.",
        lesson="09",
        patterns=("Detected mismatch between collectives on ranks",),
    ),
    Fault(
        id="all-reduce-of-a-number",
        see="TypeError: Invalid function argument. Expected parameter `tensor` of type torch.Tensor",
        means="Collectives take tensors, not Python numbers.",
        sure="Look at the argument: is it loss.item()?",
        cure="Pass loss.detach().clone(), or torch.tensor(value, device=…).",
        lesson="02",
        patterns=(r"Invalid function argument\. Expected parameter `\w+` (?:of type torch\.Tensor|to be)",),
        source="torch/distributed/distributed_c10d.py _check_single_tensor",
    ),
    Fault(
        id="gather-list-on-wrong-rank",
        see="ValueError: Argument ``gather_list`` must NOT be specified on non-destination ranks.",
        means="Only the destination passes gather_list (only the source passes scatter_list).",
        sure="Look which ranks pass the list.",
        cure="gather_list=[…] if rank == dst else None.",
        lesson="02",
        patterns=("Argument ``(?:gather|scatter)_list`` must (?:NOT )?be specified on",),
        source="torch/distributed/distributed_c10d.py _validate_output_list_for_rank",
    ),
    Fault(
        id="all-gather-list-length",
        see=(
            "RuntimeError: ProcessGroupGloo::allgather: invalid output tensor list at index 0 (expected length "
            "2, got 1)"
        ),
        means="The output list must have one tensor for each rank.",
        sure="Compare len(list) with dist.get_world_size().",
        cure="[torch.empty_like(x) for _ in range(dist.get_world_size())].",
        lesson="02",
        patterns=(r"invalid output tensor list at index \d+ \(expected length",),
    ),
    Fault(
        id="new-group-on-one-rank",
        kind="wait",
        see="torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /default_pg/0//1//cpu//0/1",
        means=(
            "dist.new_group is a collective of all ranks, members or not; only some made the call. (With the "
            "default timeout it is half an hour of silence.)"
        ),
        sure="The traceback of the waiting rank goes through new_group.",
        cure="Call new_group on every rank, in the same order.",
        lesson="02",
        patterns=(r"wait timeout after \d+ms, keys: /default_pg/0//[1-9]",),
        source="torch docs, distributed.new_group",
    ),
    Fault(
        id="send-without-recv",
        kind="wait",
        see=(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 4000ms for send "
            "operation to complete   (the traceback ends in send)"
        ),
        means=(
            "One rank sends (or receives) and the other does not do the counterpart. Two ranks that both send "
            "first do the same."
        ),
        sure="Count the sends and recvs of each pair of ranks.",
        cure="Match each send with a recv; in a ring use isend/irecv or batch_isend_irecv.",
        lesson="02",
        patterns=GLOO_TIMED_OUT,
        where=(r"in (?:send|recv)\n",),
        same_message=("collective-on-one-rank",),
    ),
    Fault(
        id="monitored-barrier",
        kind="wait",
        see="RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 2000 ms",
        means="A rank did not come to dist.monitored_barrier. The message names it.",
        sure="Look where that rank is: its traceback, or py-spy dump.",
        cure="Mend the rank that is named. (monitored_barrier works with gloo only.)",
        lesson="09",
        patterns=(r"Ranks? [\d, ]+ failed to pass monitoredBarrier in",),
    ),
)
