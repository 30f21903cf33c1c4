"""Runs inside a rank: a small vision transformer, trained on the digits within the budget of exercise 11.3.

``vit_budget_harness.py IMAGES_PER_RANK SCRIPT LEARNING_RATE PRECISION STEPS``, where SCRIPT is this file. Leaves how
many of the held-out digits are right, and the losses of rank 0, in vit.json beside the rank's logs.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

from ddp_helpers.exercises import note

TRAIN, WIDTH, HEADS, DEPTH, PATCH = 1536, 64, 4, 2, 2  # as in the lesson, with half the blocks


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(self.norms[0](tokens)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        tokens = tokens + self.mix(scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        mixed: torch.Tensor = tokens + self.mlp(self.norms[1](tokens))
        return mixed


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)
        self.place = nn.Parameter(torch.randn(16, WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.cut(images).flatten(2).transpose(1, 2) + self.place
        scores: torch.Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return scores


def main(each: int, rate: float, precision: str, steps: int) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with np.load("../data/digits.npz") as file:
        images, labels = torch.tensor(file["images"])[:, None] / 16, torch.tensor(file["labels"]).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = ViT()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    epochs = 1 + steps * each * world // TRAIN
    deck = torch.cat([order[:TRAIN][torch.randperm(TRAIN)] for _ in range(epochs)])
    losses = []
    for batch in deck.split(each * world)[:steps]:
        mine = batch[rank::world]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    with torch.no_grad():
        right = (net(images[order[TRAIN:]]).argmax(1) == labels[order[TRAIN:]]).double().mean().item()
    note.leave({"right": right, "losses": losses}, "vit.json")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
