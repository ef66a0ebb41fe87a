"""Half precision is for products: norms, parameters, gradients and optimizer state stay in float32 (SUR-08)."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from worker import PipelineJob, TensorData
from worker.layer import Layer, build_layers
from worker.norms import widen_norms
from worker.stage import Stage

WIDTH = 8
CPU = torch.device("cpu")


class Seen(nn.Module):
    """Keeps the dtypes of what goes into its norm, out of it, and out of the product behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.norm, self.after = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dtypes: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        half = self.before(x)
        exact = self.norm(half)
        out: Tensor = self.after(exact)
        self.dtypes = [half.dtype, exact.dtype, out.dtype]
        return out


def stage() -> tuple[Stage, Layer]:
    job = PipelineJob(
        layers=[Seen],
        loss=lambda output, targets: (output.float() - targets).square().mean(),
        data=TensorData(torch.zeros(2, WIDTH), torch.zeros(2, WIDTH)),
        optimizer=lambda parameters: torch.optim.AdamW(parameters),
        global_batch=2,
        total_steps=1,
    )
    (layer,) = build_layers(job, range(1), CPU).values()
    return Stage([layer], job.loss, 0, CPU, autocast=torch.bfloat16), layer


def test_products_are_in_half_precision_and_norms_in_float32() -> None:
    made, layer = stage()
    seen: Any = layer.module
    came_in: list[torch.dtype] = []
    seen.norm.register_forward_pre_hook(lambda _, inputs: came_in.append(inputs[0].dtype))
    made.forward(0, 0, torch.randn(2, WIDTH), torch.zeros(2, WIDTH))
    assert seen.dtypes == [torch.bfloat16, torch.float32, torch.bfloat16]
    assert came_in == [torch.float32]


def test_parameters_gradients_and_optimizer_state_are_in_float32() -> None:
    made, layer = stage()
    made.forward(0, 0, torch.randn(2, WIDTH), torch.zeros(2, WIDTH))
    made.backward(0, None, 1.0)
    assert {parameter.grad.dtype for parameter in layer.parameters.values() if parameter.grad is not None} == {
        torch.float32
    }
    layer.update(1e-3, None)
    tensors, _ = layer.state()
    assert len(tensors) == 4 * 6
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH), nn.GroupNorm(2, WIDTH), nn.BatchNorm1d(WIDTH)], ids=repr
)
def test_every_norm_of_torch_is_widened_once(norm: nn.Module) -> None:
    outer = nn.Sequential(norm)
    for _ in range(3):
        widen_norms(outer)
    assert len(norm._forward_pre_hooks) == 1
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(torch.randn(4, WIDTH, dtype=torch.bfloat16)).dtype is torch.float32
    assert norm.double()(torch.randn(4, WIDTH, dtype=torch.float64)).dtype is torch.float64
