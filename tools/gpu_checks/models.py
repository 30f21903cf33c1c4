"""ResNet50 and ViT-B/16, so that no torchvision is needed. A test compares their parameters with torchvision's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions beside a shortcut; the stride is the 3×3's, as in torchvision."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        first, second = _convolution(inputs, width, 1), _convolution(width, width, 3, stride)
        self.body = nn.Sequential(*first, nn.ReLU(True), *second, nn.ReLU(True), *_convolution(width, outputs, 1))
        plain = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if plain else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50(blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [*_convolution(3, width, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(inputs, width << stage, 2 if stage and not block else 1))
            inputs = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class ViT(nn.Module):
    """A vision transformer; without arguments ViT-B/16."""

    def __init__(
        self, image: int = 224, patch: int = 16, depth: int = 12, width: int = 768, heads: int = 12, classes: int = 1000
    ) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(
            *[
                nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
                for _ in range(depth)
            ]
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.cut(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.position
        return self.head(self.norm(self.layers(tokens))[:, 0])
