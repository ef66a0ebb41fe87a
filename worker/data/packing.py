"""Documents of different lengths packed into rows of one length, so that hardly any position is wasted."""

from collections.abc import Sequence

import torch
from torch import Tensor

IGNORED = -100
"""The target of positions that predict nothing: each document's separator, and what is left of a row."""


def first_fit(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Which documents share a row: longest first, each into the first row that has room for it.

    Raises:
        ValueError: a document is longer than a row.
    """
    rows: list[list[int]] = []
    left: list[int] = []
    for document in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[document]
        if length > room:
            raise ValueError(f"document {document} has {length} tokens, a row {room}; cut it first")
        row = next((i for i, free in enumerate(left) if free >= length), len(rows))
        if row == len(rows):
            rows.append([])
            left.append(room)
        rows[row].append(document)
        left[row] -= length
    return rows


class PackedDocuments:
    """Rows of `context` tokens for models that take `separator` as the end of a document. A sample is a row."""

    def __init__(self, documents: Sequence[Tensor], context: int, separator: int) -> None:
        """documents: tokens of each, without separators. Raises ValueError: one has more than context - 1 tokens."""
        ended = [torch.cat([document, torch.tensor([separator])]) for document in documents]
        self._rows = first_fit([len(document) for document in ended], context)
        self._documents, self._context, self._separator = ended, context, separator

    def __len__(self) -> int:
        return len(self._rows)

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        inputs = torch.full((len(indices), self._context), self._separator)
        targets = torch.full((len(indices), self._context), IGNORED)
        for row, index in enumerate(indices):
            start = 0
            for document in (self._documents[i] for i in self._rows[index]):
                stop = start + len(document)
                inputs[row, start:stop] = document
                targets[row, start : stop - 1] = document[1:]
                start = stop
        return inputs, targets
