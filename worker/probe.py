"""A probe: measures each layer on one device, one layer at a time, so that the model itself need not fit."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from policies.model.profile import LayerProfile, ModelProfile
from scheduler.protocol.messages import Cause, Phase
from worker import entrypoint
from worker.batches import Batches
from worker.control import Control
from worker.errors import Ended
from worker.layer import Layer, Structure, fingerprint
from worker.sdk import PipelineJob
from worker.stage import check_output

REPEATS = 2
COUNTS = (1, 2, 4, 8, 16, 32)
MOST_SIZES = 4


def run(control: Control) -> Ended:
    """Measure, report profiles and fingerprint, and return PROBE_DONE.

    Raises:
        Ended: a user's exception, or probe_timeout_s is over.
    """
    spec = control.target.spec
    deadline = time.monotonic() + spec.probe_timeout_s
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    job = entrypoint.load(spec.job)
    control.report(phase=Phase.PROBING, total_steps=job.total_steps, global_batch=job.global_batch)
    sizes = (spec.job.microbatch_size,) if spec.job.microbatch_size else microbatch_sizes(job.global_batch)
    values: dict[int, Any] = {size: _first_inputs(job, size, device) for size in sizes}
    measured: dict[int, list[LayerProfile]] = {size: [] for size in sizes}
    structures: list[Structure] = []
    for index, name in enumerate(job.names):
        control.check_start()
        if time.monotonic() > deadline:
            raise Ended(
                Cause.START_FAILED,
                f"the probe reached layer {index} ({name!r}) of {len(job.names)} in {spec.probe_timeout_s:.0f} s; give "
                "the job a `profile`, or a smaller micro-batch size",
            )
        layer = Layer(job, index, device)
        structures.append(layer.structure)
        last = index == len(job.names) - 1
        for size in sizes:
            loss = _loss(job, size, device) if last else None
            profile, values[size] = _measure(layer, values[size], loss, device)
            measured[size].append(profile)
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    name = spec.job.name
    control.report(
        fingerprint=fingerprint(structures),
        profiles=tuple(ModelProfile(name, size, kind, tuple(layers)) for size, layers in measured.items()),
    )
    return Ended(Cause.PROBE_DONE)


def microbatch_sizes(global_batch: int) -> tuple[int, ...]:
    """A few sizes for power-of-two counts that divide the global batch, smallest first."""
    sizes = sorted(global_batch // count for count in COUNTS if global_batch % count == 0)
    return tuple(sizes[:MOST_SIZES])


def _first_inputs(job: PipelineJob, size: int, device: torch.device) -> Any:
    return _batches(job, size, device).inputs(0, 0)


def _loss(job: PipelineJob, size: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    targets = _batches(job, size, device).targets(0, 0)
    return lambda output: job.loss(output, targets)


def _batches(job: PipelineJob, size: int, device: torch.device) -> Batches:
    return Batches(job.data, job.seed, job.shuffle, job.samples_before, size, device, torch.float32)


def _measure(
    layer: Layer, inputs: Any, loss: Callable[[Tensor], Tensor] | None, device: torch.device
) -> tuple[LayerProfile, Tensor]:
    """The layer's profile at the size of these inputs, best of REPEATS after a warm-up, and its output, as the next
    layer takes it: wanting a gradient, which the model's own inputs do not.

    backward is timed once for the input's gradient alone and once whole; the difference is the weights' share.
    """
    forward_s, input_s, whole_s = [], [], []
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        """Count what autograd keeps, each storage once."""
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    counting = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    for repeat in range(1 + REPEATS):
        if isinstance(inputs, Tensor) and inputs.requires_grad:
            inputs = inputs.detach().requires_grad_()
        given = inputs.clone() if isinstance(inputs, Tensor) else inputs  # a layer may overwrite it
        started = _now(device)
        with counting if repeat == 0 else contextlib.nullcontext():
            output = layer.module(given)
            check_output(layer, output)
            root = output if loss is None else loss(output)
        forward_s.append(_now(device) - started)
        gradient = torch.ones_like(root)
        started = _now(device)
        if isinstance(inputs, Tensor) and inputs.requires_grad:
            torch.autograd.grad(root, inputs, gradient, retain_graph=True, allow_unused=True)
        input_s.append(_now(device) - started)
        started = _now(device)
        if root.requires_grad:
            torch.autograd.backward(root, gradient)
        whole_s.append(_now(device) - started)
        layer.module.zero_grad(set_to_none=True)
    for parameter in layer.parameters.values():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    backward_input_s = min(input_s[1:]) if isinstance(inputs, Tensor) and inputs.requires_grad else 0.0
    profile = LayerProfile(
        name=layer.name,
        forward_s=min(forward_s[1:]),
        backward_input_s=backward_input_s,
        backward_weight_s=max(0.0, min(whole_s[1:]) - backward_input_s),
        output_bytes=output.numel() * output.element_size(),
        activation_bytes=sum(kept.values()),
        parameter_bytes=sum(p.numel() * p.element_size() for p in layer.parameters.values()),
    )
    return profile, output.detach().requires_grad_()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
