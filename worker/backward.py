"""A stage's backward without the checks of `torch.autograd.backward`, of which the executor has made its own.

The engine's door is private to torch, whose minor version is pinned; this is the only place that knows it.
"""

from torch import Tensor
from torch.autograd.graph import _engine_run_backward


def run_backward(roots: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
    """Add to the gradients of all leaves below the roots. gradients: one a root, of its shape and dtype."""
    _engine_run_backward(roots, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True)
