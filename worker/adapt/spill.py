"""Weight versions that nobody needs soon, in host memory: their order of use is known, so none comes late (DYN-32).

Tensors keep their identity, and so do graphs that hold them: only what they store goes away and comes back.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class Shelf:
    """What is in host memory, by version."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[Tensor, torch.UntypedStorage]]] = {}

    @property
    def versions(self) -> set[int]:
        """Those that are not on the device."""
        return set(self._kept)

    def put(self, version: int, tensors: Iterable[Tensor]) -> None:
        """Take their memory on the device. Pinned host memory makes the way back short."""
        if version in self._kept:
            return
        kept = []
        for tensor in tensors:
            storage = tensor.untyped_storage()
            host = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=tensor.is_cuda).untyped_storage()
            host.copy_(storage)
            storage.resize_(0)
            kept.append((tensor, host))
        self._kept[version] = kept

    def fetch(self, version: int) -> None:
        """Bring them back, bit for bit."""
        for tensor, host in self._kept.pop(version, ()):
            storage = tensor.untyped_storage()
            storage.resize_(host.nbytes())
            storage.copy_(host)

    def forget(self, versions: Iterable[int]) -> None:
        """They are not needed any more."""
        for version in versions:
            self._kept.pop(version, None)


def furthest(versions: Iterable[int], uses: Sequence[int], keep: int) -> list[int]:
    """The versions to put away so that `keep` stay: those whose next use is last. uses: versions in order of use."""
    order = list(dict.fromkeys(uses))
    ranked = sorted(versions, key=lambda version: order.index(version) if version in order else len(order))
    return ranked[keep:]
