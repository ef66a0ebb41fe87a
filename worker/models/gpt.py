"""A small GPT, layer by layer: embedding, pre-norm blocks with causal attention, head.

Packed rows hold several documents, each ended by a separator. Positions start again with each, and no token sees
another document. Every layer gets one tensor, so a document's number travels as its last channel.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from worker.slicing import SliceCache

Builder = Callable[[], nn.Module]


class Embedding(nn.Module):
    """Tokens [batch, time] -> their and their positions' vectors [batch, time, width], width + 1 where packed.

    separator: the token that ends a document in packed rows; None where rows are whole sequences.
    """

    def __init__(self, vocabulary: int, context: int, width: int, dropout: float, separator: int | None = None) -> None:
        super().__init__()
        self.separator = separator
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)

    takes_slices = True

    def forward(self, tokens: Tensor, cache: "SliceCache | None" = None) -> Tensor:
        if self.separator is not None:
            return self.packed(tokens, self.separator, cache)
        first = cache.start if cache is not None else 0
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        mixed: Tensor = self.dropout(self.token(tokens) + self.position(positions))
        return mixed

    def packed(self, tokens: Tensor, separator: int, cache: "SliceCache | None") -> Tensor:
        """Each token's position in its document, and the document's number in the row."""
        ends = (tokens == separator).long()
        if cache is not None:
            ends = cache.also(ends, dim=1)
        document = ends.cumsum(1) - ends
        place = torch.arange(ends.shape[1], device=tokens.device).expand_as(ends)
        begins = F.pad(ends[:, :-1], (1, 0)).bool()
        position = place - torch.where(begins, place, 0).cummax(1).values
        here = slice(-tokens.shape[1], None)
        mixed = self.dropout(self.token(tokens) + self.position(position[:, here]))
        return torch.cat([mixed, document[:, here, None].to(mixed.dtype)], dim=-1)


class Block(nn.Module):
    """Attention and a four times wider MLP, each added to its input. depth: the model's; scales the initial weights.

    packed: the last channel of input and output is the number of the token's document.
    """

    def __init__(self, width: int, heads: int, dropout: float, depth: int, packed: bool = False) -> None:
        super().__init__()
        self.packed = packed
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
        document = x[..., -1:] if self.packed else None
        x = x[..., :-1] if self.packed else x
        x = x + self.dropout(self.attend(self.attention_norm(x), document, cache))
        out: Tensor = x + self.dropout(self.narrow(F.gelu(self.widen(self.mlp_norm(x)))))
        return out if document is None else torch.cat([out, document], dim=-1)

    def attend(self, x: Tensor, document: Tensor | None = None, cache: "SliceCache | None" = None) -> Tensor:
        """Each token sees those before it in its document, in earlier slices too. document: [batch, time, 1]."""
        batch, time, width = x.shape
        query, key, value = (
            part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        seen: Tensor | None = None
        if cache is not None:
            key, value = cache.extend(key, value, dim=2)
        if cache is not None or document is not None:
            seen = torch.ones(time, key.shape[2], dtype=torch.bool, device=x.device).tril(key.shape[2] - time)
        if document is not None and seen is not None:
            others = document if cache is None else cache.also(document, dim=1)
            seen = (seen & (document == others.transpose(1, 2)))[:, None]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=seen is None)
        projected: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, time, width))
        return projected


class Head(nn.Module):
    """Vectors -> one score a token of the vocabulary. packed: their last channel is no part of them."""

    def __init__(self, vocabulary: int, width: int, packed: bool = False) -> None:
        super().__init__()
        self.packed = packed
        self.norm, self.score = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.score.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.score(self.norm(x[..., :-1] if self.packed else x))
        return scores


def gpt_layers(
    vocabulary: int, context: int, width: int, blocks: int, heads: int, dropout: float, separator: int | None = None
) -> dict[str, Builder]:
    """The layers by name, for PipelineJob(layers=...). separator: the token that ends a document in packed rows.

    Raises:
        ValueError: heads do not divide the width.
    """
    if width % heads:
        raise ValueError(f"width {width} is not a multiple of {heads} heads")
    packed = separator is not None
    layers: dict[str, Builder] = {"embedding": lambda: Embedding(vocabulary, context, width, dropout, separator)}
    for index in range(blocks):
        layers[f"block{index}"] = lambda: Block(width, heads, dropout, blocks, packed)
    layers["head"] = lambda: Head(vocabulary, width, packed)
    return layers


def next_token_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy, in nats a token."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def packed_token_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats over all positions of packed rows; those of target -100 count 0.

    The divisor does not depend on how documents fell, so that the mean of slices and of micro-batches is the mean.
    """
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum") / targets.numel()
