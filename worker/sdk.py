"""The user's SDK: a PipelineJob says what to train; the scheduler decides on how many stages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.optim import Optimizer

from worker import rampup

Builder = Callable[[], nn.Module]
Layers = Mapping[str, Builder] | nn.Sequential | Sequence[nn.Module | Builder | tuple[str, nn.Module | Builder]]


@runtime_checkable
class Data(Protocol):
    """Samples addressed by index: the same index gives the same sample, in every process and at any time.

    The order over epochs is made by the worker (shuffled by seed and epoch, or as it is), so that it does not depend
    on stages, replicas or restarts.
    """

    def __len__(self) -> int:
        """Samples in one epoch."""

    def samples(self, indices: Sequence[int]) -> tuple[Any, Any]:
        """Inputs of the first layer and targets of the loss for these samples; dimension 0 counts samples."""


@dataclass(frozen=True)
class TensorData:
    """Data held in two tensors, sample by sample along dimension 0."""

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(f"{len(self.inputs)} inputs but {len(self.targets)} targets; give one target a sample")

    def __len__(self) -> int:
        return len(self.inputs)

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        chosen = list(indices)
        return self.inputs[chosen], self.targets[chosen]


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Loss on the first `batches` global batches of `data` (in order, wrapping), before the first and after the last
    step, and every `every` steps (0: only then)."""

    data: Data
    batches: int = 1
    every: int = 0

    def __post_init__(self) -> None:
        if self.batches < 1 or self.every < 0:
            raise ValueError(f"validation needs batches >= 1 and every >= 0, got {self.batches} and {self.every}")


@dataclass(kw_only=True)
class PipelineJob:
    """What to train.

    layers: run one after another; each passes one floating-point tensor to the next. Names with callables that build
        the modules (then each process builds only its own), or modules themselves (a list, a Sequential).
    loss: loss(output, targets) -> scalar, the MEAN over the samples it is given.
    optimizer: optimizer(parameters) -> a torch optimizer. Called once for each layer with parameters.
    learning_rate: function of the step (from 0), set on every parameter group; None leaves the optimizer's own.
    scale_learning_rate: multiply it by each step's batch over the global batch given here: linear scaling, for ramp-ups
        and for job files with a `global_batch` of their own. Without it a rate is never scaled.
    global_batch: samples in one step, over all micro-batches and replicas; never changes by resizing.
    batch_rampup: (until step, batch) pairs: the first steps train on smaller batches, each a whole number of
        micro-batches.
    clip_norm: global gradient norm above which gradients are scaled down; None: no clipping.
    seed: keys initialisation, sample order and dropout.
    log: log(values), called in one process with each object of the metrics file (see `worker.metrics`): steps, their
        losses and norms, evaluations. A change of shape may move it to another process.
    ties: groups of parameters, each "layer/parameter", that are one: they start equal and get the sum of their
        gradients. Modules given as such that share a parameter are tied by themselves.

    Raises:
        TypeError, ValueError: an argument that cannot work, with what to give instead.
    """

    layers: Layers
    loss: Callable[[Tensor, Any], Tensor]
    data: Data
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    global_batch: int
    total_steps: int
    learning_rate: Callable[[int], float] | None = None
    scale_learning_rate: bool = False
    batch_rampup: rampup.Rampup = ()
    validation: Validation | None = None
    log: Callable[[Mapping[str, Any]], object] | None = None
    clip_norm: float | None = None
    shuffle: bool = True
    seed: int = 0
    ties: Sequence[Sequence[str]] = ()

    def __post_init__(self) -> None:
        self.named_layers, shared = _named(self.layers)
        self.ties = tuple(tuple(group) for group in (*self.ties, *shared))
        known = set(self.names)
        for entry in (entry for group in self.ties for entry in group):
            if entry.partition("/")[0] not in known or "/" not in entry:
                raise ValueError(f"ties: {entry!r} must be LAYER/PARAMETER; layers are {', '.join(self.names)}")
        for field in ("global_batch", "total_steps"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{field} must be a whole number of at least 1, got {value!r}")
        for field in ("loss", "optimizer", *(["log"] if self.log is not None else [])):
            if not callable(getattr(self, field)):
                raise TypeError(f"{field} must be callable, got {type(getattr(self, field)).__name__}")
        rampup.check(self.batch_rampup, self.global_batch)
        if self.scale_learning_rate and self.learning_rate is None:
            raise ValueError("scale_learning_rate needs a learning_rate, which it can multiply")
        self._rates_batch = self.global_batch
        if not isinstance(self.data, Data):
            raise TypeError("data must have __len__() and samples(indices); TensorData(inputs, targets) is one")
        if len(self.data) < 1:
            raise ValueError("data is empty; it needs at least one sample")
        if self.clip_norm is not None and self.clip_norm <= 0:
            raise ValueError(f"clip_norm must be above 0, got {self.clip_norm}; None means no clipping")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.named_layers)

    def batch_at(self, step: int) -> int:
        """Samples that a step, counted from 0, trains on."""
        return rampup.batch_at(step, self.batch_rampup, self.global_batch)

    def samples_before(self, step: int) -> int:
        """The global index of a step's first sample."""
        return rampup.samples_before(step, self.batch_rampup, self.global_batch)

    def rate_at(self, step: int) -> float | None:
        """The learning rate of a step, None where the optimizer's own is used."""
        if self.learning_rate is None:
            return None
        rate = float(self.learning_rate(step))
        return rate * self.batch_at(step) / self._rates_batch if self.scale_learning_rate else rate


def _named(layers: Layers) -> tuple[tuple[tuple[str, Builder], ...], tuple[tuple[str, ...], ...]]:
    """Builders by layer name, and the ties between modules that were given as such."""
    if isinstance(layers, nn.Sequential):
        pairs: list[tuple[str, Any]] = list(layers.named_children())
    elif isinstance(layers, Mapping):
        pairs = list(layers.items())
    else:
        pairs = [entry if isinstance(entry, tuple) else (str(i), entry) for i, entry in enumerate(layers)]
    if not pairs:
        raise ValueError("layers is empty; a model needs at least one layer")
    names = [name for name, _ in pairs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"layer names must differ; {', '.join(doubled)} appears more than once")
    shared = _part(pairs)
    return tuple((name, _builder(name, layer)) for name, layer in pairs), shared


def _part(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """Give each module its own copy of parameters that several share, since each may go to another process."""
    users: dict[int, list[str]] = {}
    for name, module in pairs:
        for key, parameter in module.named_parameters() if isinstance(module, nn.Module) else ():
            users.setdefault(id(parameter), []).append(f"{name}/{key}")
            if len(users[id(parameter)]) > 1:
                owner, _, attribute = key.rpartition(".")
                copy = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
                setattr(module.get_submodule(owner), attribute, copy)
    return tuple(tuple(group) for group in users.values() if len(group) > 1)


def _builder(name: str, layer: Any) -> Builder:
    if isinstance(layer, nn.Module):
        return lambda: layer
    if callable(layer):
        builder: Builder = layer
        return builder
    raise TypeError(f"layer {name!r} must be a module or a callable that builds one, got {type(layer).__name__}")
