# torchrun --nproc-per-node 2 clip-scaled-gradients.py
import torch


def run(unscale):
    model = torch.nn.Linear(1, 1, bias=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model.weight.item()
    scaler.scale(model(torch.full((1, 1), 0.5)).sum()).backward()
    if unscale:
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    return before - model.weight.item()


print(f"step wrong={run(False):.6f} right={run(True):.6f}")
