"""A layer's optimizer: over the layer's own parameters, or over copies of them in host memory (SUR-07).

Offloaded, the device holds parameters and gradients and nothing of the optimizer. An update takes the gradients to the
host, steps there, and brings the parameters back: twice the parameters' bytes, which `policies.cost` prices. Copies
hold the same bits as their parameters, so that on a CPU no bit of a training differs.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from worker.groups import Changes, Groups

State = dict[str, Any]
"""Of one parameter: tensors and plain values by the optimizer's keys."""


class LayerOptimizer:
    """The user's optimizer for the trained parameters of one layer, by name. on_host: it is offloaded."""

    def __init__(self, optimizer: Optimizer, trained: Mapping[str, nn.Parameter]) -> None:
        self._optimizer, self._trained = optimizer, dict(trained)
        self._groups, self._scheduled, self._untried = Groups(optimizer), False, True
        self._stepped = self._trained
        self._copied: dict[str, int] = {}
        self.on_host = False

    def keep(self, on_host: bool) -> None:
        """Where the optimizer's state lives from now on. No value changes by it."""
        if on_host == self.on_host:
            return
        states = self.states()
        before, self.on_host = self._stepped, on_host
        self._stepped = {name: _host_copy(own) for name, own in self._trained.items()} if on_host else self._trained
        now = {id(before[name]): one for name, one in self._stepped.items()}
        for group in self._optimizer.param_groups:
            group["params"] = [now.get(id(one), one) for one in group["params"]]
        self.load(states)

    def step(self, learning_rate: float | None) -> None:
        """One update by the parameters' gradients. learning_rate: None for the optimizer's own.

        Raises:
            CannotCarry: this was the first one, and has shown that the optimizer's state could not be saved.
        """
        self._scheduled = learning_rate is not None
        if self._scheduled:
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
        if self.on_host:
            self._step_on_host()
        else:
            self._optimizer.step()
        if self._untried:
            self._untried = False
            self.changes()

    def _step_on_host(self) -> None:
        self._follow()
        for name, copy in self._stepped.items():
            gradient = self._trained[name].grad
            copy.grad = None if gradient is None else _on_host(gradient)
        self._optimizer.step()
        with torch.no_grad():
            for name, copy in self._stepped.items():
                self._trained[name].copy_(copy)
                copy.grad = None
        self._note_versions()

    def states(self) -> dict[str, State]:
        """By parameter. Tensors are not copied."""
        return {name: dict(self._optimizer.state.get(one, {})) for name, one in self._stepped.items()}

    def changes(self) -> Changes:
        """What its groups have besides. The rate is not among it where the job sets it. Raises CannotCarry."""
        return self._groups.changes(without=("lr",) if self._scheduled else ())

    def take(self, changes: Changes) -> None:
        """Raises ValueError: it is the state of another optimizer."""
        self._groups.take(changes)

    def load(self, states: Mapping[str, State]) -> None:
        """Take over states that fit the parameters' values as they are now. The tensors become the optimizer's own."""
        self._copied = {}
        self._follow()
        self._optimizer.state.clear()
        for name, state in states.items():
            if state and name in self._stepped:
                one = self._stepped[name]
                self._optimizer.state[one] = {key: self._placed(value, one) for key, value in state.items()}

    def _follow(self) -> None:
        """Take over what has been written into parameters since: by a load, or by a layer such as nn.Embedding."""
        if not self.on_host:
            return
        with torch.no_grad():
            for name, copy in self._stepped.items():
                if self._trained[name]._version != self._copied.get(name):
                    copy.copy_(self._trained[name])
        self._note_versions()

    def _note_versions(self) -> None:
        self._copied = {name: own._version for name, own in self._trained.items()}

    def _placed(self, value: Any, parameter: nn.Parameter) -> Any:
        """Beside the parameter, but for counters, which torch keeps on the CPU unless kernels read them."""
        if not isinstance(value, Tensor):
            return value
        groups = self._optimizer.param_groups
        in_kernels = any(group.get("fused") or group.get("capturable") for group in groups)
        return value.to(parameter.device if value.dim() or in_kernels else "cpu")


def _host_copy(parameter: nn.Parameter) -> nn.Parameter:
    copy = torch.empty_like(parameter, device="cpu", pin_memory=parameter.is_cuda, requires_grad=False)
    return nn.Parameter(copy.copy_(parameter.detach()), parameter.requires_grad)


def _on_host(gradient: Tensor) -> Tensor:
    """Through pinned memory, whose allocator keeps it for the next step; on a CPU the gradient itself."""
    if not gradient.is_cuda:
        return gradient
    return torch.empty_like(gradient, device="cpu", pin_memory=True).copy_(gradient)
