"""Containers: shared memory and devices."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="shm-allocate",
        see=(
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_42_1_0>: No space left on device "
            "(28)\n"
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_42_1_0>: Resource "
            "temporarily unavailable (11)"
        ),
        means="/dev/shm is too small for the batch that a worker hands over. Containers give it 64 MB.",
        sure="df -h /dev/shm.",
        cure=(
            "docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir with medium: Memory; or num_workers=0."
        ),
        lesson="00",
        needs="container",
        patterns=(
            r"unable to allocate shared memory ?\(shm\) for file",
            "unable to (?:write to|resize|mmap|open) .*</?torch_",
            r"insufficient shared memory \(shm\)",
        ),
        same_message=("worker-bus-error",),
        source="torch/lib/libtorch_cpu (text)",
    ),
    Fault(
        id="nccl-shm-too-small",
        see=(
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-4f2a (size 9637888), error: No "
            "space left on device (28)"
        ),
        means="/dev/shm is too small for NCCL. Docker gives 64 MB.",
        sure="df -h /dev/shm in the container; ls /dev/shm for leftovers nccl-*.",
        cure=(
            "--shm-size=1g or more, --ipc=host; in Kubernetes an emptyDir with medium: Memory; delete "
            "leftovers. (NCCL_SHM_DISABLE=1 is slow.)"
        ),
        lesson="00",
        needs="container",
        patterns=(
            "failed to extend /dev/shm/nccl-",
            r"Error while \w+ shared memory segment \S*nccl",
            "NCCL WARN Call to posix_fallocate failed",
            r"Error: shmget|/dev/shm/nccl-\S+ .*No space left",
        ),
        source="NVIDIA/nccl#290; NVIDIA/nccl#342; NVIDIA/nccl#525; pytorch/ci-infra#490; libnccl 2.30.7 (text)",
    ),
    Fault(
        id="container-no-gpu",
        see='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        means="The NVIDIA container toolkit is missing on the host.",
        sure="docker info | grep -i nvidia; nvidia-smi on the host.",
        cure="Install nvidia-container-toolkit, restart docker.",
        lesson="00",
        needs="container",
        patterns=(
            r"could not select device driver .*capabilities: \[\[gpu\]\]",
            "nvidia-container-cli: initialization error",
        ),
    ),
)
