"""Our programs in torch.distributed.pipelining's own runtime. Its private names are used in this file only.

Run as a module by each rank: python -m torch_runtime RANK RANKS STORE; it raises where gradients differ.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _ComputationType, _PipelineScheduleRuntime

from policies.ir.instruction import Op
from policies.ir.schedule import Schedule
from policies.schedules.catalogue import make_schedule
from policies.schedules.lowering import lower

WIDTH, ROWS = 6, 3
CASES = (
    ("gpipe", 5, None),
    ("1f1b", 5, None),
    ("eager-1f1b", 5, None),
    ("interleaved-1f1b", 6, 2),
    ("zb-h1", 5, None),
    ("zbv", 6, None),
    ("dualpipev", 6, None),
)
_OURS = {Op.SEND_LAYER, Op.RECV_LAYER}
_TYPES = {op: _ComputationType.from_str(str(op)) for op in Op if op not in _OURS}


def torch_schedule(schedule: Schedule, stages: list[PipelineStage]) -> _PipelineScheduleRuntime:
    """The runtime with our instruction lists, sends and receives included."""
    runtime = _PipelineScheduleRuntime(stages, schedule.microbatches, loss_fn=_loss, scale_grads=False)
    actions = {
        rank: [_Action(do.stage, _TYPES[do.op], do.microbatch) for do in program]
        for rank, program in enumerate(lower(schedule))
    }
    runtime._prepare_schedule_with_comms(actions, format="compute_comms")
    return runtime


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).sum()


def _layer(stage: int) -> nn.Module:
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double()


def check(schedule: Schedule, rank: int) -> None:
    """One step in torch's runtime; every gradient equals the single process's to 1e-10 relative."""
    torch.manual_seed(99)
    rows = ROWS * schedule.microbatches
    inputs, target = torch.randn(rows, WIDTH).double(), torch.randn(rows, WIDTH).double()
    layers = [_layer(stage) for stage in range(schedule.stages)]
    _loss(nn.Sequential(*layers)(inputs), target).backward()
    expected = [[parameter.grad.clone() for parameter in layer.parameters()] for layer in layers]

    mine = [stage for stage in range(schedule.stages) if schedule.stage_rank[stage] == rank]
    own = {stage: _layer(stage) for stage in mine}
    stages = [PipelineStage(own[s], s, schedule.stages, torch.device("cpu")) for s in mine]
    runtime = torch_schedule(schedule, stages)
    first, last = 0 in mine, schedule.stages - 1 in mine
    runtime.step(*([inputs] if first else []), **({"target": target} if last else {}))
    for stage in mine:
        for parameter, wanted in zip(own[stage].parameters(), expected[stage], strict=True):
            assert parameter.grad is not None, (schedule.name, stage)
            assert torch.allclose(parameter.grad, wanted, rtol=1e-10, atol=1e-12), (schedule.name, stage)


def main(rank: int, ranks: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    for name, count, chunks in CASES:
        check(make_schedule(name, ranks, count, chunks=chunks), rank)
        print(name, "equal", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
