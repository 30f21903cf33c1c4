"""What autocast and GradScaler refuse; the device is the argument."""

import sys

import torch

device = torch.device(sys.argv[1])
if device.type == "cuda":
    torch.cuda.set_device(0)


def attempt(work):
    try:
        work()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return "accepted"


def bce():
    with torch.autocast(device.type, dtype=torch.float16):
        p = torch.rand(4, 1, device=device, requires_grad=True)
        torch.nn.BCELoss()(p.sigmoid(), torch.ones(4, 1, device=device))


def unscale(dtype):
    layer = torch.nn.Linear(4, 4, device=device, dtype=dtype)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type)
    scaler.scale(layer(torch.rand(2, 4, device=device, dtype=dtype)).sum()).backward()
    scaler.unscale_(optimizer)


answers = {
    "BCELoss under autocast": attempt(bce),
    "unscale_ of fp16 weights": attempt(lambda: unscale(torch.float16)),
    "unscale_ of bf16 weights": attempt(lambda: unscale(torch.bfloat16)),
}
