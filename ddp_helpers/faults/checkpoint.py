"""Saving and loading."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="module-prefix",
        see=(
            "RuntimeError: Error(s) in loading state_dict for Linear:\n"
            '\tUnexpected key(s) in state_dict: "module.weight", "module.bias".'
        ),
        means=(
            "The checkpoint was saved from the wrapper, so all its keys begin with 'module.'; this model is "
            "not wrapped."
        ),
        sure="list(state)[:2] begins with 'module.'.",
        cure=(
            "Save model.module.state_dict(). For old files: "
            "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, 'module.')."
        ),
        lesson="08",
        patterns=(r'Unexpected key\(s\) in state_dict: "module\.',),
        source="hpcaitech/ColossalAI#768",
    ),
    Fault(
        id="plain-keys-into-wrapper",
        see=(
            "RuntimeError: Error(s) in loading state_dict for DistributedDataParallel:\n"
            '\tMissing key(s) in state_dict: "module.weight", "module.bias".'
        ),
        means="The checkpoint's keys lack the prefix 'module.' that the wrapped model has.",
        sure="list(state)[:2] does not begin with 'module.'; the message says DistributedDataParallel.",
        cure="Load into the model before wrapping it, or into ddp.module.",
        lesson="08",
        patterns=(
            r"Error\(s\) in loading state_dict for (?:Distributed)?DataParallel",
            r'Missing key\(s\) in state_dict: "module\.',
        ),
        source="MCG-NJU/TDN#69",
    ),
    Fault(
        id="weights-only",
        see=(
            "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you "
            "have two options"
        ),
        means="Since torch 2.6 torch.load takes tensors and plain types only.",
        sure="The message names the class that is not allowed ('Unsupported global').",
        cure=(
            "Save plain dicts and tensors. For a class you trust: torch.serialization.safe_globals([…]). "
            "weights_only=False only for files that you made yourself."
        ),
        lesson="08",
        patterns=(r"Weights only load failed\.", r"Unsupported global: GLOBAL \S+ was not an allowed global"),
    ),
    Fault(
        id="torn-checkpoint",
        see="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        means=(
            "The file is not whole: ended while it was saved, a full disk, a copy that broke off, or two ranks "
            "that wrote it at once."
        ),
        sure="python -m zipfile -l FILE; compare its size with an earlier one.",
        cure="Take an earlier checkpoint. Save on rank 0, under a temporary name, then os.replace.",
        lesson="08",
        patterns=(
            "PytorchStreamReader failed (?:reading|finding|locating)",
            r"record size \(\d+ bytes\) does not match expected size",
        ),
        source="pytorch/pytorch#170244; sml2h3/dddd_trainer#36",
    ),
    Fault(
        id="load-before-save-is-done",
        see="FileNotFoundError: [Errno 2] No such file or directory: 'late.pt'",
        means=(
            "A rank loads a checkpoint that is not there (yet): rank 0 is still saving it, or it is on another "
            "node's disk."
        ),
        sure="It is only other ranks than 0, or only other nodes. Does ls show the file there?",
        cure="dist.barrier() between saving and loading; a shared disk, or one copy for each node.",
        lesson="08",
        patterns=(r"FileNotFoundError: .*\.(?:pt|pth|ckpt|bin|safetensors|tar)'",),
    ),
    Fault(
        id="size-mismatch",
        see=(
            "RuntimeError: Error(s) in loading state_dict for Linear:\n"
            "\tsize mismatch for weight: copying a param with shape torch.Size([2, 2]) from checkpoint, the "
            "shape in current model is torch.Size([3, 2])."
        ),
        means="Other architecture than at saving (number of classes, width, version).",
        sure="Compare config of then and now.",
        cure="Build the same model; drop the head's keys if the head is meant to be new.",
        lesson="08",
        patterns=(r"size mismatch for .*: copying a param with shape torch\.Size",),
    ),
    Fault(
        id="checkpoint-of-gpu-on-cpu",
        see=("RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."),
        means="The file remembers the GPU it was saved from.",
        sure="It was saved on a GPU, and this process sees none, or fewer.",
        cure="torch.load(…, map_location='cpu'), always; then move the model.",
        lesson="08",
        patterns=("Attempting to deserialize object on (?:a )?CUDA device",),
    ),
    Fault(
        id="folder-made-twice",
        see="FileExistsError: [Errno 17] File exists: 'out/epoch_3'",
        means=(
            "Several ranks make the same folder (or file), and the slower one finds it there. On network disks "
            "even exist_ok=True can fail so."
        ),
        sure="The path is the same on all ranks; it comes only sometimes.",
        cure=(
            "Let rank 0 make it, then dist.barrier(). After a restart: the folder of the first attempt is still there."
        ),
        lesson="08",
        patterns=(r"FileExistsError: \[(?:Errno 17|WinError 183)\]",),
        source="NVIDIA-NeMo/Automodel#3686",
    ),
)
