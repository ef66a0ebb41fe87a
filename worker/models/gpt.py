"""A small GPT, layer by layer: embedding, pre-norm blocks with causal attention, head."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from worker.slicing import SliceCache

Builder = Callable[[], nn.Module]


class Embedding(nn.Module):
    """Tokens [batch, time] -> their and their positions' vectors [batch, time, width]."""

    def __init__(self, vocabulary: int, context: int, width: int, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)

    takes_slices = True

    def forward(self, tokens: Tensor, cache: "SliceCache | None" = None) -> Tensor:
        first = cache.start if cache is not None else 0
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        mixed: Tensor = self.dropout(self.token(tokens) + self.position(positions))
        return mixed


class Block(nn.Module):
    """Attention and a four times wider MLP, each added to its input. depth: the model's; scales the initial weights."""

    def __init__(self, width: int, heads: int, dropout: float, depth: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        for linear in (self.query_key_value, self.widen):
            nn.init.normal_(linear.weight, std=0.02)
        for linear in (self.project, self.narrow):
            nn.init.normal_(linear.weight, std=0.02 / (2 * depth) ** 0.5)

    takes_slices = True

    def forward(self, x: Tensor, cache: "SliceCache | None" = None) -> Tensor:
        x = x + self.dropout(self.attend(self.attention_norm(x), cache))
        out: Tensor = x + self.dropout(self.narrow(F.gelu(self.widen(self.mlp_norm(x)))))
        return out

    def attend(self, x: Tensor, cache: "SliceCache | None" = None) -> Tensor:
        """Each token sees those before it, in earlier slices too."""
        batch, time, width = x.shape
        query, key, value = (
            part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        if cache is None:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            key, value = cache.extend(key, value, dim=2)
            seen = torch.ones(time, key.shape[2], dtype=torch.bool, device=x.device).tril(key.shape[2] - time)
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        projected: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, time, width))
        return projected


class Head(nn.Module):
    """Vectors -> one score a token of the vocabulary."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.norm, self.score = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.score.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.score(self.norm(x))
        return scores


def gpt_layers(
    vocabulary: int, context: int, width: int, blocks: int, heads: int, dropout: float
) -> dict[str, Builder]:
    """The layers by name, for PipelineJob(layers=...). Raises ValueError where heads do not divide the width."""
    if width % heads:
        raise ValueError(f"width {width} is not a multiple of {heads} heads")
    layers: dict[str, Builder] = {"embedding": lambda: Embedding(vocabulary, context, width, dropout)}
    for index in range(blocks):
        layers[f"block{index}"] = lambda: Block(width, heads, dropout, blocks)
    layers["head"] = lambda: Head(vocabulary, width)
    return layers


def next_token_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy, in nats a token."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())
