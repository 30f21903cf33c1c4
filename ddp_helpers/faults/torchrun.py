"""What torchrun says of its ranks, and how it is started."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="rank-raises",
        kind="general",
        see="KeyError: 'label_column'",
        means="A rank raised an exception of its own code. The other ranks then stop or fall with it.",
        sure="It is the first traceback of that rank.",
        cure=(
            "Mend the line. @record (torch.distributed.elastic.multiprocessing.errors) puts the traceback into "
            "torchrun's table."
        ),
        lesson="09",
        source="pytorch/pytorch#91278",
    ),
    Fault(
        id="torchrun-table",
        kind="victim",
        see="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        means="torchrun announces that a rank failed. The cause stands above, under that rank.",
        sure="Look for the first traceback of the rank that the table names.",
        cure="Mend that.",
        lesson="09",
        patterns=(
            r"elastic\.multiprocessing\.errors\.(?:api\.)?ChildFailedError",
            r"Child process with PID \d+ terminated with code",
        ),
    ),
    Fault(
        id="exit-code-9",
        kind="death",
        see="exitcode  : -9 (pid: 4711)  (SIGKILL)",
        means=(
            "The system ended this rank with SIGKILL. When nobody did that by hand: the machine's, the "
            "container's or the job's memory ran out."
        ),
        sure="`dmesg -T | grep -i 'killed process'`; the job's memory (sacct -o MaxRSS); docker stats.",
        cure="Less memory for each rank (workers, batch, one copy of the data), or a larger limit.",
        lesson="09",
        patterns=(
            r"exitcode\s*: -9 \(pid: \d+\)",
            r"failed \(exitcode: -9\)",
            r"Signal 9 \(SIGKILL\) received",
            "terminated with signal SIGKILL",
            r"died with <Signals\.SIGKILL",
            "exits with return code = -9",
            r"line \d+:\s+\d+ Killed\b",
            "Out of memory: Killed process",
            "^Killed$",
            r"task \d+: Killed",
        ),
    ),
    Fault(
        id="exit-code-11",
        kind="death",
        see="exitcode  : -11 (pid: 4711)  (SIGSEGV)",
        means=(
            "A native library crashed. With DDP on gloo, TORCH_DISTRIBUTED_DEBUG=DETAIL does it (never use it "
            "with DDP: it crashes)."
        ),
        sure="PYTHONFAULTHANDLER=1 shows the Python line. Is TORCH_DISTRIBUTED_DEBUG set?",
        cure="Unset TORCH_DISTRIBUTED_DEBUG; else another version of the library in the last frame.",
        lesson="09",
        patterns=(
            r"exitcode\s*: -11 \(pid: \d+\)",
            r"failed \(exitcode: -11\)",
            r"Signal 11 \(SIGSEGV\) received",
            "Fatal Python error: Segmentation fault",
            "^Segmentation fault",
            r"line \d+:\s+\d+ Segmentation fault",
            "terminated with signal SIGSEGV",
            r"died with <Signals\.SIGSEGV",
            "exits with return code = -11",
            r"Caught signal 11 \(Segmentation fault",
        ),
    ),
    Fault(
        id="exit-code-6",
        kind="end",
        see="exitcode  : -6 (pid: 4711)  (SIGABRT)",
        means=(
            "C++ code gave up. A line with what() says why: with gloo a size mismatch, with NCCL the watchdog. "
            "A Python exception can end so too: then the traceback is the cause."
        ),
        sure="Look for 'what():' and for a traceback of this rank above.",
        cure="By that line.",
        lesson="09",
        patterns=(
            r"exitcode\s*: -6 \(pid: \d+\)",
            r"failed \(exitcode: -6\)",
            r"Signal 6 \(SIGABRT\) received",
            "Fatal Python error: Aborted",
            r"^Aborted\b",
            r"line \d+:\s+\d+ Aborted",
            "terminated with signal SIGABRT",
            r"died with <Signals\.SIGABRT",
        ),
    ),
    Fault(
        id="exit-code-7",
        kind="death",
        see="exitcode  : -7 (pid: 4711)  (SIGBUS)",
        means=(
            "A memory-mapped file could not grow or was cut: /dev/shm or the disk is full. NCCL and data "
            "loaders in a container do it."
        ),
        sure="df -h /dev/shm during the run, and on the disk.",
        cure="docker run --shm-size=8g or --ipc=host; room on the disk.",
        lesson="00",
        patterns=(
            r"exitcode\s*: -7 \(pid: \d+\)",
            r"failed \(exitcode: -7\)",
            r"Signal 7 \(SIGBUS\) received",
            "Fatal Python error: Bus error",
            "^Bus error",
            r"Caught signal 7 \(Bus error",
            "terminated with signal SIGBUS",
            "exits with return code = -7",
        ),
        source="awslabs/slapo#114; msr-fiddle/pipedream#76",
    ),
    Fault(
        id="exit-code-15",
        kind="victim",
        see="exitcode  : -15 (pid: 4711)  (SIGTERM)",
        means="torchrun stopped this rank because another one failed.",
        sure="The table's 'Root Cause' names the other.",
        cure="Look there.",
        lesson="09",
        patterns=(
            r"exitcode\s*: -15 \(pid: \d+\)",
            r"Sending process \d+ closing signal SIG(?:TERM|INT)",
            r"Signal 15 \(SIGTERM\) received",
            r"DataLoader worker \(pid \d+\) is killed by signal: Terminated",
        ),
        no_script="see rank-raises",
    ),
    Fault(
        id="abort-at-exit",
        kind="end",
        see="terminate called without an active exception",
        means=(
            "Python was ending while one of torch's threads still wanted its lock (before Python 3.14 that ends the "
            "thread, and C++ aborts). destroy_process_group was not called; or gloo still held the last "
            "all_reduce's tensor, since a DDP model keeps its threads alive. The work was done before, unless a "
            "traceback says otherwise."
        ),
        sure="All results are there, and it comes only sometimes, mostly on a busy machine.",
        cure="End the script with dist.barrier(), and dist.destroy_process_group() after it.",
        lesson="01",
        patterns=("terminate called without an active exception",),
        no_script="a race: about one run in ten",
    ),
    Fault(
        id="hang-up",
        kind="stop",
        see=(
            "Received 1 death signal, shutting down workers\n"
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 1"
        ),
        means="The terminal or ssh session that torchrun was started from was closed. The script is not at fault.",
        sure="Signal 1 is SIGHUP; the log ends when the connection ended.",
        cure=(
            "Run it in tmux or screen, or as a batch job. nohup alone does not help: torchrun installs a "
            "handler of its own."
        ),
        lesson="01",
        patterns=(
            r"Received (?:1|SIGHUP|Signals\.SIGHUP) death signal",
            r"got signal: (?:1$|SIGHUP|Signals\.SIGHUP)",
            "closing signal SIGHUP",
        ),
        no_script="closes torchrun itself",
        source="modelscope/ms-swift#64",
    ),
    Fault(
        id="terminated-from-outside",
        kind="stop",
        see="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15",
        means="Somebody, or the scheduler, stopped torchrun: a time limit, scancel, preemption, docker stop.",
        sure="sacct -j JOB -o State,Elapsed,Timelimit; the scheduler's log.",
        cure="A longer time limit; save before it ends (sbatch --signal).",
        lesson="12",
        patterns=(
            r"Received (?:15|SIGTERM|Signals\.SIGTERM) death signal",
            r"got signal: (?:15$|SIGTERM|Signals\.SIGTERM)",
        ),
        no_script="stops torchrun itself",
    ),
    Fault(
        id="interrupted",
        kind="general",
        see="KeyboardInterrupt",
        means="Somebody pressed Ctrl-C (SIGINT). Where the ranks were at that moment shows what they waited for.",
        sure="Each traceback ends in KeyboardInterrupt.",
        cure="If you stopped it because it hung: look which ranks were in a collective, and which were not.",
        lesson="09",
        patterns=(
            "^KeyboardInterrupt",
            r"Received (?:2|SIGINT|Signals\.SIGINT) death signal",
            "got signal: (?:2$|SIGINT)",
        ),
        no_script="needs somebody at the keyboard",
    ),
    Fault(
        id="local-rank-argument",
        see="train.py: error: unrecognized arguments: --local-rank=0",
        means=(
            "python -m torch.distributed.launch passes --local-rank=N (with a dash since torch 2.0), and the "
            "script does not know it."
        ),
        sure="Exit code 2 is argparse's. The command begins with python -m torch.distributed.launch.",
        cure="Start with torchrun, and read int(os.environ['LOCAL_RANK']).",
        lesson="01",
        patterns=("error: unrecognized arguments: .*--local[-_]rank",),
        source="huggingface/pytorch-image-models#1724; microsoft/LoRA#79",
    ),
    Fault(
        id="local-rank-required",
        see="train.py: error: the following arguments are required: --local_rank",
        means="An old script wants --local_rank, and torchrun does not pass it.",
        sure="Exit code 2 is argparse's.",
        cure="Read LOCAL_RANK from the environment: default=int(os.environ.get('LOCAL_RANK', 0)).",
        lesson="01",
        patterns=("the following arguments are required: .*--local[-_]rank",),
    ),
    Fault(
        id="script-arguments-first",
        see="torchrun: error: unrecognized arguments: --lr",
        means=(
            "torchrun does not know this option: the script's own arguments stand before the script's name, or "
            "it is one of the old torch.distributed.launch (--use_env)."
        ),
        sure="Is the option that is named your script's?",
        cure="torchrun [torchrun's options] script.py [script's options]; leave --use_env out.",
        lesson="01",
        patterns=(
            "torchrun: error: unrecognized arguments: ",
            r"run\.py: error: unrecognized arguments: .*--use[-_]env",
        ),
        no_script="torchrun refuses its command line before a rank starts",
    ),
    Fault(
        id="wrong-arguments",
        see="train.py: error: argument --lr: invalid float value: 'fast'",
        means="The script's own argument parser refused its arguments, on every rank.",
        sure="Exit code 2 is argparse's. The line after 'usage:' says which argument.",
        cure="Mend the command line; the script's arguments come after the script's name.",
        lesson="01",
        patterns=(
            r"^(?!torchrun)[\w./-]+: error: (?:unrecognized arguments: (?!.*local[-_]rank)|argument |ambiguous option)",
            r"^(?!torchrun)[\w./-]+: error: the following arguments are required: (?!.*local[-_]rank)",
            r"^argparse\.ArgumentError: ",
        ),
    ),
    Fault(
        id="nproc-gpu-without-gpu",
        see="ValueError: Cuda is not available.",
        means="--nproc-per-node gpu on a machine without a visible GPU.",
        sure="torch.cuda.is_available() is False.",
        cure="Give a number, or cpu, or auto.",
        lesson="00",
        patterns=(r"ValueError: Cuda is not available\.",),
        no_script="torchrun stops before a rank starts",
    ),
    Fault(
        id="no-destroy",
        kind="warning",
        see=("Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources."),
        means="The script ends without dist.destroy_process_group(). The results are fine; gloo prints nothing.",
        sure=("Is the last line of the script reached on all ranks? After an exception this warning is only an echo."),
        cure="Call it at the end, on all ranks.",
        lesson="01",
        needs="gpu",
        patterns=(r"destroy_process_group\(\) was not called before program exit",),
        source="NVIDIA/Megatron-LM#1541",
    ),
)
