"""What a notebook brings about."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="spawn-from-notebook",
        see=(
            "AttributeError: Can't get attribute 'train' on <module '__main__' (built-in)>\n"
            "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f2a>: attribute lookup <lambda> on "
            "__main__ failed"
        ),
        means="A spawned process does not know what a notebook cell defined (and no process can pickle a lambda).",
        sure="The function or class is defined in a cell, or is a lambda.",
        cure="Write it to a file and start that with torchrun; %%torchrun does it.",
        lesson="01",
        patterns=(
            "Can't pickle .*attribute lookup .* on __main__ failed",
            r"Can't get attribute '\w+' on <module '__main__'",
            "Can't pickle (?:local object|<function) .*<lambda>",
        ),
        source="Lightning-AI/pytorch-lightning#10511",
    ),
    Fault(
        id="no-main-guard",
        see=(
            "An attempt has been made to start a new process before the\n"
            "current process has finished its bootstrapping phase."
        ),
        means="A spawned process imports the script; without a guard it begins to spawn again.",
        sure="mp.spawn or a DataLoader with spawned workers stands at the script's top level.",
        cure="Put the start under if __name__ == '__main__':.",
        lesson="01",
        patterns=("An attempt has been made to start a new process before the",),
    ),
    Fault(
        id="fork-cuda",
        see=(
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        ),
        means=(
            "CUDA was used before the fork: in a notebook's kernel, or tensors on the GPU inside a dataset "
            "with workers."
        ),
        sure="torch.cuda.is_initialized() is True before the fork.",
        cure="Start fresh processes (torchrun does); keep tensors in datasets on the CPU.",
        lesson="01",
        needs="gpu",
        patterns=(
            "Cannot re-initialize CUDA in forked subprocess",
            "CUDA error: initialization error",
        ),
        source="huggingface/accelerate#940; pytorch/pytorch#40403; torch/cuda/__init__.py _lazy_init",
    ),
    Fault(
        id="no-keyboard",
        see="EOFError: EOF when reading a line",
        means="A rank has no keyboard: input() finds nothing to read.",
        sure="The script calls input(), or a library asks a question.",
        cure="Pass the value as a script argument.",
        lesson="01",
        patterns=("EOFError: EOF when reading a line",),
    ),
    Fault(
        id="module-not-found",
        see="ModuleNotFoundError: No module named 'helpers'",
        means=(
            "A rank cannot import this module. Ranks import from the script's folder, the notebook's folder "
            "and the installed packages."
        ),
        sure="Is it installed in the environment of this Python (sys.executable), on every node?",
        cure="Install it there, or put the file beside the script.",
        lesson="01",
        patterns=("ModuleNotFoundError: No module named",),
    ),
)
