"""One layer of a model with its optimizer: what is built, stepped, saved, moved and counted as a unit."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scheduler.protocol.messages import Cause
from worker.entrypoint import user_exception
from worker.errors import Ended
from worker.groups import CannotCarry
from worker.keys import reseed, seed_for_layer
from worker.optimizer import LayerOptimizer
from worker.sdk import PipelineJob
from worker.unfilled import build_unfilled

Structure = dict[str, Any]
"""A layer's name with shape and dtype of each parameter and buffer; JSON."""

GROUPS = ".groups"
"""Among a state's plain values, what the optimizer's groups have; no parameter's name begins with a dot."""


class Layer:
    """A built layer. `state()` and `load()` carry all that training changes in it."""

    def __init__(
        self,
        job: PipelineJob,
        index: int,
        device: torch.device,
        dtype: torch.dtype | None = None,
        initialise: bool = True,
    ) -> None:
        """initialise: False where a state will be loaded anyway; random initial values, the slow part, are skipped.

        Raises:
            Ended: the user's builder or optimizer raised, or built something unusable.
        """
        self.index, self.device = index, device
        self.name, builder = job.named_layers[index]
        try:
            module = None if initialise else build_unfilled(builder)
            if module is None:
                reseed(seed_for_layer(job.seed, index), device)
                module = builder()
        except Exception as error:
            raise user_exception(error, f"building layer {self.name!r} raised") from None
        if not isinstance(module, nn.Module):
            raise Ended(
                Cause.BAD_SPEC,
                f"the builder of layer {self.name!r} returned {type(module).__name__}, not a torch module",
            )
        self.structure: Structure = _structure(self.name, module)
        self.module = module.to(device=device, dtype=dtype)
        self.parameters = dict(self.module.named_parameters())
        self.updates = 0
        """Optimizer steps; whoever compares them sets it back."""
        self.uncounted: set[str] = set()
        """Parameters tied to one of an earlier layer, which counts for both in the gradient norm."""
        trained = {name: parameter for name, parameter in self.parameters.items() if parameter.requires_grad}
        try:
            self.optimizer = LayerOptimizer(job.optimizer(list(trained.values())), trained) if trained else None
        except Exception as error:
            raise user_exception(error, f"the optimizer of layer {self.name!r} raised") from None

    def parameter(self, name: str) -> nn.Parameter:
        """Raises Ended, BAD_SPEC, where there is no such parameter: `ties` names it wrongly."""
        if name not in self.parameters:
            what = f"ties: layer {self.name!r} has no parameter {name!r}; it has {', '.join(self.parameters)}"
            raise Ended(Cause.BAD_SPEC, what)
        return self.parameters[name]

    def all_gradients(self) -> list[Tensor]:
        """Gradients of all trained parameters; one that got none becomes zeros, so that replicas agree on the list."""
        for parameter in self.parameters.values():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]

    def squared_gradient_norm(self) -> float:
        """Sum of squares in float64, parameter by parameter: independent of the cut. A gradient of None counts 0."""
        return sum(
            float(parameter.grad.double().pow(2).sum())
            for name, parameter in self.parameters.items()
            if parameter.grad is not None and name not in self.uncounted
        )

    def update(self, learning_rate: float | None, scale: float | None) -> None:
        """One optimizer step with gradients scaled by `scale`, then gradients dropped.

        Raises:
            Ended: NOT_SUPPORTED, the optimizer keeps what could not be saved.
        """
        if self.optimizer is None:
            return
        if scale is not None:
            for parameter in self.parameters.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(scale)
        try:
            self.optimizer.step(learning_rate)
        except CannotCarry as error:
            raise self._unfit(error) from None
        self.updates += 1
        self.drop_gradients()

    def keep_optimizer(self, on_host: bool) -> None:
        """Where the optimizer's state lives from now on: beside the parameters or in host memory."""
        if self.optimizer is not None:
            self.optimizer.keep(on_host)

    def drop_gradients(self) -> None:
        self.module.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors (not copied) by key, and the optimizer's plain values: {parameter: {key: value}}, with what it has
        changed in its groups under GROUPS.

        Raises:
            Ended: NOT_SUPPORTED, the optimizer keeps what could not be saved.
        """
        tensors = {f"parameter/{name}": parameter.detach() for name, parameter in self.parameters.items()}
        tensors |= {f"buffer/{name}": buffer for name, buffer in self.module.named_buffers()}
        values: dict[str, Any] = {}
        for name, state in (self.optimizer.states() if self.optimizer else {}).items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer/{name}/{key}"] = value
                elif value is not None:
                    values.setdefault(name, {})[key] = value
        try:
            changes = self.optimizer.changes() if self.optimizer else {}
        except CannotCarry as error:
            raise self._unfit(error) from None
        return tensors, values | ({GROUPS: changes} if changes else {})

    def load(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Take over a state, in a layer as it was built. The tensors become the layer's own.

        Raises:
            ValueError: it is the state of another layer.
        """
        own: dict[str, Tensor] = {f"parameter/{name}": parameter for name, parameter in self.parameters.items()}
        own |= {f"buffer/{name}": buffer for name, buffer in self.module.named_buffers()}
        given = {key for key in tensors if not key.startswith("optimizer/")}
        if given != own.keys():
            raise ValueError(f"layer {self.name!r} differs in {', '.join(sorted(given ^ own.keys()))}")
        for key, target in own.items():
            if tensors[key].shape != target.shape:
                raise ValueError(
                    f"{key} of layer {self.name!r} has shape {tuple(tensors[key].shape)}, not {tuple(target.shape)}"
                )
        with torch.no_grad():
            for key, target in own.items():
                if tensors[key].data_ptr() != target.data_ptr():  # it did not arrive in place
                    target.copy_(tensors[key])
        if self.optimizer is None:
            return
        states: dict[str, dict[str, Any]] = {name: dict(values.get(name, {})) for name in self.parameters}
        for name, state in states.items():
            prefix = f"optimizer/{name}/"
            state |= {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
        self.optimizer.load(states)
        self.optimizer.take(values.get(GROUPS, {}))

    def _unfit(self, error: CannotCarry) -> Ended:
        return Ended(Cause.NOT_SUPPORTED, f"the optimizer of layer {self.name!r}: {error}")


def build_layers(
    job: PipelineJob,
    indices: Sequence[int],
    device: torch.device,
    dtype: torch.dtype | None = None,
    initialise: bool = True,
    offload: bool = False,
) -> dict[int, Layer]:
    """This rank's layers, and no others.

    Parameters tied to one of an earlier layer start with its values. offload: optimizers live in host memory.

    Raises:
        Ended: BAD_SPEC for parameters shared between layers without a tie, else as Layer.
    """
    layers = {index: Layer(job, index, device, dtype, initialise) for index in indices}
    owner: dict[int, str] = {}
    for layer in layers.values():
        for parameter in layer.parameters.values():
            other = owner.setdefault(id(parameter), layer.name)
            if other != layer.name:
                raise Ended(
                    Cause.BAD_SPEC,
                    f"layers {other!r} and {layer.name!r} share a parameter; give each layer its own and name them in "
                    "PipelineJob(ties=...)",
                )
    for first, *copies in tied_parameters(job):
        for tied in copies:
            if tied.layer in layers:
                layers[tied.layer].uncounted.add(tied.name)
                source = layers.get(first.layer) or Layer(job, first.layer, device, dtype, initialise)
                with torch.no_grad():
                    layers[tied.layer].parameter(tied.name).copy_(source.parameter(first.name))
    for layer in layers.values():
        layer.keep_optimizer(offload)
    return layers


@dataclass(frozen=True)
class TiedParameter:
    """One of several parameters that are one. layer: global index."""

    layer: int
    name: str


def tied_parameters(job: PipelineJob) -> list[list[TiedParameter]]:
    """The job's ties, each in layer order."""
    index = {name: i for i, name in enumerate(job.names)}
    groups = []
    for group in job.ties:
        entries = [entry.partition("/") for entry in group]
        made = [TiedParameter(index[layer], parameter) for layer, _, parameter in entries]
        groups.append(sorted(made, key=lambda tied: (tied.layer, tied.name)))
    return groups


def fingerprint(structures: Sequence[Structure]) -> str:
    """SHA-256 over all layers' names, shapes and dtypes, in layer order."""
    return hashlib.sha256(json.dumps(list(structures), sort_keys=True).encode()).hexdigest()


def _structure(name: str, module: nn.Module) -> Structure:
    def of(tensors: Any) -> dict[str, Any]:
        return {
            key: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
            for key, tensor in tensors
        }

    return {"name": name, "parameters": of(module.named_parameters()), "buffers": of(module.named_buffers())}
