"""Samplers, data loaders and their workers."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="shuffle-with-sampler",
        see="ValueError: sampler option is mutually exclusive with shuffle",
        means="A DataLoader takes a sampler or shuffle=True, not both.",
        sure="The DataLoader call has sampler= and shuffle=True.",
        cure="Shuffle in the sampler: DistributedSampler(data, shuffle=True), and set_epoch.",
        lesson="05",
        patterns=("sampler option is mutually exclusive with shuffle",),
    ),
    Fault(
        id="set-epoch-on-loader",
        see="AttributeError: 'DataLoader' object has no attribute 'set_epoch'",
        means="set_epoch belongs to the sampler.",
        sure="The call is on the loader.",
        cure="loader.sampler.set_epoch(epoch).",
        lesson="05",
        patterns=("'DataLoader' object has no attribute 'set_epoch'",),
    ),
    Fault(
        id="sampler-rank-invalid",
        see="ValueError: Invalid rank 1, rank should be in the interval [0, 0]",
        means="num_replicas or rank was given by hand and does not fit.",
        sure="Print both against dist.get_rank() and dist.get_world_size().",
        cure="Leave them out: the sampler asks the process group.",
        lesson="05",
        patterns=(r"Invalid rank \d+, rank should be in the interval \[0, -?\d+\]",),
        source="torch/utils/data/distributed.py DistributedSampler.__init__",
    ),
    Fault(
        id="worker-killed",
        see="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        means=(
            "The system ended a data loader's worker, nearly always because memory ran out: workers × ranks × "
            "prefetched batches."
        ),
        sure="`dmesg | grep -i 'killed process'`; free -g during a run; the container's or job's memory limit.",
        cure="Fewer workers, a smaller prefetch_factor, no large Python lists in the dataset, or more memory.",
        lesson="05",
        patterns=(r"DataLoader worker \(pid \d+\) is killed by signal: Killed",),
        source="torch/utils/data/_utils/signal_handling.py",
    ),
    Fault(
        id="worker-bus-error",
        see=(
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
            "memory (shm).\n"
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
            "dataloader's workers are out of shared memory."
        ),
        means=(
            "A memory-mapped file could not grow, most often in /dev/shm, through which workers hand over their "
            "batches. Containers give it 64 MB by default."
        ),
        sure="`df -h /dev/shm` during the run.",
        cure=(
            "docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir with medium: Memory at "
            "/dev/shm; or num_workers=0."
        ),
        lesson="00",
        patterns=(
            "Unexpected bus error encountered in worker",
            r"DataLoader worker \(pid \d+\) is killed by signal: Bus error",
        ),
        source="pytorch/pytorch#5040",
    ),
    Fault(
        id="worker-exited",
        kind="general",
        see="RuntimeError: DataLoader worker (pid 4711) exited unexpectedly with exit code 1.",
        means="A worker process ended by itself: a library called exit, crashed, or did not survive the fork.",
        sure="num_workers=0 shows the error in the main process.",
        cure=(
            "Mend what num_workers=0 shows; multiprocessing_context='spawn' or 'forkserver' for libraries with threads."
        ),
        lesson="05",
        patterns=(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) exited unexpectedly",),
    ),
    Fault(
        id="worker-segfault",
        see=(
            "ERROR: Unexpected segmentation fault encountered in worker.\n"
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Segmentation fault."
        ),
        means="A native library crashed in the worker (decoder, OpenCV, HDF5 opened before the fork).",
        sure="num_workers=0 with PYTHONFAULTHANDLER=1 shows the line.",
        cure="Open files inside the worker; cv2.setNumThreads(0); another version of the library.",
        lesson="05",
        patterns=(
            "Unexpected segmentation fault encountered in worker",
            r"DataLoader worker \(pid \d+\) is killed by signal: (?:Segmentation fault|Aborted|Illegal instruction)",
        ),
    ),
    Fault(
        id="worker-raises",
        see="RuntimeError: Caught RuntimeError in DataLoader worker process 0.",
        means=(
            "An ordinary error in the dataset or in the collate function. The true line is under 'Original Traceback'."
        ),
        sure="Read the last lines, not the first; or run with num_workers=0.",
        cure="Mend the dataset or the collate function.",
        lesson="05",
        patterns=(r"Caught \w+ in DataLoader worker process \d+",),
    ),
    Fault(
        id="too-many-open-files",
        see=(
            "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please "
            "increase the limit using `ulimit -n` in the shell or change the sharing strategy"
        ),
        means=(
            "Each tensor that a worker hands over holds an open file, and the limit is reached. Samples kept "
            "in a list keep their files open."
        ),
        sure="ls /proc/PID/fd | wc -l against ulimit -n.",
        cure="Clone or convert what you keep; ulimit -n 65536; set_sharing_strategy('file_system').",
        lesson="05",
        patterns=(
            "Too many open files",
            "received 0 items of ancdata",
        ),
        source="pytorch/pytorch#973; pytorch/pytorch#11201",
    ),
    Fault(
        id="too-many-workers",
        kind="warning",
        see=(
            "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number "
            "of worker in current system is 2, which is smaller than what this DataLoader is going to create."
        ),
        means="num_workers counts per rank: workers × ranks is what the machine gets.",
        sure="Compare os.cpu_count() with ranks × workers.",
        cure="num_workers = cores // ranks.",
        lesson="05",
        patterns=(r"This DataLoader will create \d+ worker processes in total\. Our suggested max number",),
    ),
    Fault(
        id="loader-timeout",
        see="RuntimeError: DataLoader timed out after 2 seconds",
        means=("A worker is stuck or slow (a network disk, a lock that the fork took along), and a timeout was set."),
        sure="py-spy dump of the worker, or num_workers=0.",
        cure="Find what it waits for; a longer timeout if it is only slow.",
        lesson="05",
        patterns=(r"DataLoader timed out after [\d.]+ seconds",),
    ),
    Fault(
        id="not-picklable",
        see="TypeError: cannot pickle 'Environment' object",
        means=(
            "A spawned process (a rank of mp.spawn, or a worker) gets a copy of the dataset or the arguments, "
            "and this object cannot be copied: an open file, a database, a lock."
        ),
        sure="The traceback goes through multiprocessing and pickle. Which attribute holds the object?",
        cure=(
            "Open it lazily, in the process that uses it (in __getitem__), or start the ranks with torchrun, "
            "which copies nothing."
        ),
        lesson="05",
        patterns=(r"TypeError: (?:cannot|can't) pickle '?[\w.]+'? objects?",),
    ),
)
