"""A small convolutional net for small pictures, layer by layer: a stem, residual blocks, a head."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Builder = Callable[[], nn.Module]


class Stem(nn.Module):
    """Pictures [batch, channels, height, width] -> `width` channels of the same size."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.GroupNorm(1, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


class Residual(nn.Module):
    """Two convolutions added to their input. halve: height and width, and double the channels."""

    def __init__(self, channels: int, halve: bool) -> None:
        super().__init__()
        out, stride = (2 * channels, 2) if halve else (channels, 1)
        self.first = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.GroupNorm(1, out), nn.GroupNorm(1, out)
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False) if halve else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.shortcut(x) + self.second_norm(self.second(inner)))


class Head(nn.Module):
    """Mean over the picture, then one score a class."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.score = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.score(torch.mean(x, dim=(2, 3)))
        return scores


def convnet_layers(channels: int, classes: int, width: int, blocks: int, halvings: int) -> dict[str, Builder]:
    """The layers by name, for PipelineJob(layers=...). The first `halvings` of the blocks halve the picture.

    Norms are over groups of channels, not over the batch: statistics of a micro-batch would depend on its size.

    Raises:
        ValueError: more halvings than blocks.
    """
    if halvings > blocks:
        raise ValueError(f"{halvings} halvings need as many blocks, there are {blocks}")
    layers: dict[str, Builder] = {"stem": lambda: Stem(channels, width)}
    for index in range(blocks):
        inside, halves = width * 2 ** min(index, halvings), index < halvings
        layers[f"block{index}"] = partial(Residual, inside, halves)
    layers["head"] = lambda: Head(width * 2**halvings, classes)
    return layers
