"""Memory: the GPU's, the machine's, and the disk's."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="cuda-oom",
        see=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 5 has a total "
            "capacity of 23.43 GiB of which 210.06 MiB is free."
        ),
        means="This rank's GPU is full. One rank is enough: the others then wait, or fall with it.",
        sure=(
            "torch.cuda.max_memory_allocated() on each rank. 'Process … has … in use' in the message names "
            "strangers on the card."
        ),
        cure=(
            "A smaller batch per rank with accumulation, activation checkpointing, bf16. End the strangers. If "
            "much is 'reserved but unallocated': PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        ),
        lesson="09",
        needs="gpu",
        patterns=(
            "CUDA out of memory",
            "CUDA error: out of memory",
            "Cuda failure (?:2 )?'out of memory'",
            "Failed to CUDA (?:calloc|malloc)",
            "HIP out of memory",
        ),
        source="meta-pytorch/torchtune#2071; NVIDIA/nccl#1235",
    ),
    Fault(
        id="host-memory",
        see=(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 1000000000000000 bytes."
        ),
        means=(
            "The machine's memory is full. Most often: every rank, and every worker of every rank, has its own copy of "
            "the data."
        ),
        sure="ps -o rss on each process; free -g.",
        cure="One copy: memory-mapped files, arrays in place of Python lists, fewer workers.",
        lesson="09",
        patterns=(
            "DefaultCPUAllocator: (?:can't|not enough) (?:allocate )?memory",
            r"OSError: \[Errno 12\] Cannot allocate memory",
            r"^(?:numpy\.\S*)?MemoryError\b",
        ),
    ),
    Fault(
        id="disk-full",
        see="OSError: [Errno 28] No space left on device",
        means="The disk (or the quota) that this rank writes to is full.",
        sure="df -h on the folder that is written to, and df -i.",
        cure="Free some space, keep fewer checkpoints, write elsewhere.",
        lesson="08",
        patterns=(
            r"OSError: \[Errno 28\] No space left on device",
            r"\[Errno 122\] Disk quota exceeded",
        ),
    ),
)
