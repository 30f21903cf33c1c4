"""DistributedDataParallel: what it asks of the model, and of all ranks."""

from __future__ import annotations

from .fault import GLOO_TIMED_OUT, Fault

FAULTS = (
    Fault(
        id="unused-parameters",
        see=(
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new "
            "one. This error indicates that your module has parameters that were not used in producing loss."
        ),
        means=(
            "Some parameters got no gradient in the step before: a layer or an output that is not used, a "
            "branch that only some ranks take, or layers frozen after wrapping."
        ),
        sure=(
            "The message ends with the indices of these parameters; TORCH_DISTRIBUTED_DEBUG=INFO adds their "
            "names. (Never DETAIL: DDP crashes under it with gloo.)"
        ),
        cure="Use or remove the layer, freeze before wrapping, or pass find_unused_parameters=True.",
        lesson="07",
        patterns=(
            "Expected to have finished reduction in the prior iteration before starting a new one",
            "parameters that were not used in producing",
        ),
        source="pytorch/pytorch#43259",
    ),
    Fault(
        id="models-differ",
        see=(
            "RuntimeError: [1]: params[0] in this process with sizes [6, 4] appears not to match sizes of the "
            "same param in process 0."
        ),
        means="The ranks built different models: number of classes from local data, another config, other code.",
        sure="Print the parameters' shapes on each rank.",
        cure="Derive sizes from what all ranks know; the same config and code on all nodes.",
        lesson="03",
        patterns=("appears not to match (?:sizes|strides) of the same param in process",),
    ),
    Fault(
        id="layer-on-one-rank",
        see=(
            "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has "
            "inconsistent 4 params."
        ),
        means="A rank's model has more parameters than another's: a layer that only some ranks build or freeze.",
        sure="Print [name for name, p in model.named_parameters() if p.requires_grad] on each rank.",
        cure="Build and freeze the same layers on all ranks; decide from what all ranks know.",
        lesson="03",
        patterns=("DDP expects same model across all ranks",),
    ),
    Fault(
        id="reentrant-checkpointing",
        see=(
            "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the "
            "following reasons: 1) Use of a module parameter outside the `forward` function."
        ),
        means=(
            "A parameter's gradient arrived twice in one backward: reentrant activation checkpointing, or a "
            "parameter used in several backward passes."
        ),
        sure="The message names the parameter. Is it inside checkpoint(…)?",
        cure="checkpoint(…, use_reentrant=False); or one backward per forward.",
        lesson="07",
        patterns=("Expected to mark a variable ready only once",),
    ),
    Fault(
        id="buffer-changed-in-place",
        see=(
            "RuntimeError: one of the variables needed for gradient computation has been modified by an "
            "inplace operation: [torch.FloatTensor [2]] is at version 2; expected version 1 instead."
        ),
        means=(
            "A tensor that backward needs was changed after its use: a buffer changed in forward, or DDP "
            "copied rank 0's buffers (BatchNorm) at a second forward before the backward."
        ),
        sure=(
            "torch.autograd.set_detect_anomaly(True) shows the operation. Are there two forwards before one backward?"
        ),
        cure=(
            "Change a clone; one forward on the joined inputs; or DDP(…, broadcast_buffers=False) "
            "(forward_sync_buffers=False since torch 2.14), or SyncBatchNorm on GPUs."
        ),
        lesson="03",
        patterns=("one of the variables needed for gradient computation has been modified by an inplace operation",),
    ),
    Fault(
        id="syncbatchnorm-on-cpu",
        see="ValueError: SyncBatchNorm layers only work with GPU modules",
        means="SyncBatchNorm has no CPU version.",
        sure="The model, or this rank's part of it, is on the CPU.",
        cure="Convert to SyncBatchNorm only when the model is on GPUs.",
        lesson="03",
        patterns=(
            "SyncBatchNorm layers only work with (?:GPU|CUDA) modules",
            "SyncBatchNorm expected input tensor to be on (?:GPU|cuda)",
        ),
    ),
    Fault(
        id="device-ids-on-cpu",
        see=(
            "ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
            "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device "
            "None, and module parameters {device(type='cpu')}."
        ),
        means="device_ids was given for a model on the CPU, or the model was not moved to the GPU.",
        sure="Print next(model.parameters()).device.",
        cure="device_ids=[local_rank] only after model.to(local_rank); on CPU leave it out.",
        lesson="03",
        patterns=("DistributedDataParallel device_ids and output_device arguments only work with",),
    ),
    Fault(
        id="attribute-of-wrapper",
        see="AttributeError: 'DistributedDataParallel' object has no attribute 'encode'",
        means="DDP wraps the model; the model's own methods and attributes are on model.module.",
        sure="hasattr(model.module, 'encode') is True.",
        cure="Use model.module for attributes. What is to be trained belongs into forward, where DDP sees it.",
        lesson="03",
        patterns=("'(?:Distributed)?DataParallel' object has no attribute '(?!_)",),
        source="ultralytics/yolov5#90; Project-MONAI/GenerativeModels#354",
    ),
    Fault(
        id="find-unused-not-needed",
        kind="warning",
        see=(
            "[W reducer.cpp:1529] Warning: find_unused_parameters=True was specified in DDP constructor, but "
            "did not find any unused parameters in the forward pass."
        ),
        means="Harmless: the flag costs a walk through the graph in every step and finds nothing.",
        sure="Time a step with and without.",
        cure="Leave the flag out.",
        lesson="07",
        patterns=("find_unused_parameters=True was specified in DDP constructor, but did not find any unused",),
    ),
    Fault(
        id="eval-on-rank-zero",
        kind="wait",
        see=(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 4000ms for send "
            "operation to complete   (in DDP's forward, _sync_buffers)"
        ),
        means=(
            "This rank called the wrapped model alone, as in an evaluation on rank 0. DDP sends the buffers "
            "(BatchNorm) before a forward that follows a training step, and the others are elsewhere. eval() and "
            "no_grad() do not help: without gradients only the first forward sends, but it does."
        ),
        sure="The traceback goes through DDP's forward and _sync_buffers; the others wait in another line.",
        cure="Evaluate on all ranks, or use model.module(x) on one rank.",
        lesson="09",
        patterns=GLOO_TIMED_OUT,
        where=("in _sync_buffers|in _sync_module_buffers",),
        same_message=("collective-on-one-rank",),
        source="pytorch/pytorch#54059",
    ),
    Fault(
        id="wrapped-on-one-rank",
        kind="wait",
        see=(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 4000ms for send "
            "operation to complete   (in DDP's constructor)"
        ),
        means=("Not all ranks came to DDP(…): its constructor compares and sends the weights, so it is a collective."),
        sure="The traceback ends in DistributedDataParallel's __init__.",
        cure="Wrap on every rank, in the same order; see what the absent rank does instead.",
        lesson="03",
        patterns=GLOO_TIMED_OUT,
        where=("_verify_param|in _sync_module_states|in _ddp_init_helper",),
        same_message=("collective-on-one-rank",),
    ),
    Fault(
        id="uneven-inputs",
        kind="wait",
        see=(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv "
            "operation to complete   (in backward)"
        ),
        means="This rank waits in backward for a rank that has no more batches, or that skipped this step.",
        sure="Print len(loader) on each rank. The traceback ends in backward.",
        cure=(
            "DistributedSampler (it pads) or drop_last=True; or `with Join([model]):`. Never skip a step on "
            "one rank alone."
        ),
        lesson="05",
        patterns=GLOO_TIMED_OUT,
        where=(r"in backward\n",),
        same_message=("collective-on-one-rank",),
        source="pytorch/pytorch#33148",
    ),
    Fault(
        id="batch-of-one-in-batchnorm",
        see=("ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 2])"),
        means="The last batch of a rank has one sample, and BatchNorm cannot take a variance of one.",
        sure="Print the batch sizes of the last step.",
        cure="drop_last=True, or another batch size.",
        lesson="05",
        patterns=("Expected more than 1 value per channel when training",),
    ),
)
