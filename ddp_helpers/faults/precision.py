"""Mixed precision."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="unscale-fp16-gradients",
        see="ValueError: Attempting to unscale FP16 gradients.",
        means="The weights themselves are fp16 (model.half(), or loaded so). GradScaler wants fp32 weights.",
        sure="Print {p.dtype for p in model.parameters()}.",
        cure="Keep the weights in float32 and let autocast do the halves; or bf16 without a scaler.",
        lesson="06",
        patterns=("Attempting to unscale FP16 gradients",),
        source="mk-minchul/AdaFace#127; yk7333/d3po#6",
    ),
    Fault(
        id="no-inf-checks",
        see="AssertionError: No inf checks were recorded for this optimizer.",
        means=(
            "No parameter of this optimizer has a gradient: the loss does not reach them, they are frozen, or "
            "the optimizer belongs to another model."
        ),
        sure="[p.grad is None for p in optimizer.param_groups[0]['params']].",
        cure="Let the loss reach these parameters; make the optimizer from the model that is trained.",
        lesson="06",
        patterns=("No inf checks were recorded for this optimizer",),
        source="huggingface/accelerate#328; SheldonTsui/GOF_NeurIPS2021#2",
    ),
    Fault(
        id="unscale-twice",
        see="RuntimeError: unscale_() has already been called on this optimizer since the last update().",
        means="unscale_ may come once a step; with accumulation it stood inside the loop over micro-batches.",
        sure="Count the calls between two updates.",
        cure="Only after the last micro-batch, before clipping.",
        lesson="06",
        patterns=(r"unscale_\(\) (?:has already been called on this optimizer|is being called after step\(\))",),
    ),
    Fault(
        id="scheduler-before-optimizer",
        kind="warning",
        see="UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
        means="Wrong order; or the scaler skipped the first step because its scale was too large.",
        sure="Did scaler.get_scale() fall in that step?",
        cure="Step the optimizer first. With a scaler: step the scheduler only if the scale did not fall.",
        lesson="06",
        patterns=(r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",),
    ),
    Fault(
        id="bce-under-autocast",
        see=("RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."),
        means="BCELoss on probabilities loses too much in fp16: CUDA refuses it, the CPU says nothing.",
        sure="The loss is BCELoss on probabilities.",
        cure="BCEWithLogitsLoss on logits.",
        lesson="06",
        needs="gpu",
        patterns=(r"binary_cross_entropy and torch\.nn\.BCELoss are unsafe to autocast",),
    ),
    Fault(
        id="dtypes-mixed",
        see="RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float",
        means=(
            "Input and weights have different types: half by hand, or an operation outside of autocast got a "
            "half from inside."
        ),
        sure="Print x.dtype and weight.dtype before the line.",
        cure=(
            "Let autocast choose: float32 model and inputs, forward and loss inside `with torch.autocast(…)`; "
            "otherwise x.to(weight.dtype)."
        ),
        lesson="06",
        patterns=(
            "mat1 and mat2 must have the same dtype",
            r"expected (?:m1 and m2|scalar type \w+ but found \w+|mat1 and mat2)",
            r"Input type \(.*(?:Half|BFloat16|HalfTensor).*\) and (?:bias|weight) type \(.*\) should be the same",
            r"Input type \(.*\) and (?:bias|weight) type \(.*(?:Half|BFloat16).*\) should be the same",
        ),
    ),
    Fault(
        id="nan-in-backward",
        see="RuntimeError: Function 'DivBackward0' returned nan values in its 0th output.",
        means="Anomaly detection found where the first NaN of the backward pass comes from.",
        sure="The traceback above it shows the forward line of that operation.",
        cure="Mend that operation: 0/0, sqrt or log of 0, a too large learning rate, fp16 overflow.",
        lesson="06",
        patterns=(r"Function '\w+' returned nan values in its \d+th output",),
    ),
)
