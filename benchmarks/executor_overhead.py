"""CPU per action and step time of our executor against torch.distributed.pipelining, in one run.

Two ranks, 1F1B. Trivial stages show what the engine costs; stages of 15 ms show what is left of that in a step.
Wanted: CPU per action <= 0.75x on the worse rank, step time with 15 ms stages <= 1.02x (median of 5 interleaved runs).

    python benchmarks/executor_overhead.py
"""

import contextlib
import datetime
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store, TCPStore

TIMEOUT = datetime.timedelta(seconds=60)
RANKS, MICROBATCHES, WIDTH, REPEATS, STEPS = 2, 64, 32, 5, 20


class Sleeps(nn.Module):
    """A layer of known duration; a linear layer keeps it differentiable."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.linear = seconds, nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if self.seconds:
            time.sleep(self.seconds)
        out: Tensor = self.linear(x)
        return out


def client(port: int, prefix: str) -> Store:
    """Of the one store that both meet in."""
    return PrefixStore(prefix, TCPStore("127.0.0.1", port, None, False, TIMEOUT, wait_for_workers=False))


def ours(rank: int, port: int, seconds: float, microbatches: int) -> Callable[[], object]:
    from policies.ir.plan import ParallelPlan, StagePlan
    from policies.schedules.lowering import orders_for
    from worker.executor import Executor, message_tags
    from worker.layer import Layer
    from worker.sdk import PipelineJob, TensorData
    from worker.shapes import Shape
    from worker.stage import Stage
    from worker.transport import Groups

    data = TensorData(torch.randn(microbatches, WIDTH), torch.randn(microbatches, WIDTH))
    job = PipelineJob(
        layers=[lambda: Sleeps(seconds)] * RANKS,
        loss=nn.functional.mse_loss,
        data=data,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        global_batch=microbatches,
        total_steps=1,
    )
    groups = Groups(client(port, "ours"), f"{seconds}", rank, RANKS, "127.0.0.1", lambda: None, 30)
    plan = ParallelPlan(tuple(StagePlan(r, r + 1, (r,), (microbatches,)) for r in range(RANKS)), microbatches, 1)
    programs = orders_for(plan)
    device = torch.device("cpu")
    stage = Stage([Layer(job, rank, device)], job.loss if rank == RANKS - 1 else None, 0, device)
    shapes = {1: [Shape((1, WIDTH), torch.float32)]}
    tags = message_tags(programs)
    executor = Executor(programs[rank], {rank: stage}, RANKS - 1, groups.world, tags, shapes, device)

    class Source:
        def inputs(self, _step: int, microbatch: int) -> Tensor:
            return data.inputs[microbatch : microbatch + 1]

        def targets(self, _step: int, microbatch: int) -> Tensor:
            return data.targets[microbatch : microbatch + 1]

    return lambda: executor.run(Source(), 0, 1 / microbatches)


def theirs(rank: int, seconds: float, microbatches: int) -> Callable[[], object]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    stage = PipelineStage(Sleeps(seconds), rank, RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=nn.functional.mse_loss)
    inputs, targets = torch.randn(microbatches, WIDTH), torch.randn(microbatches, WIDTH)
    if rank == 0:
        return lambda: schedule.step(inputs)
    return lambda: schedule.step(target=targets, losses=[])


def measure(run: Callable[[], object], steps: int) -> tuple[float, float]:
    """Wall and CPU seconds a step."""
    import torch.distributed as dist

    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        run()
    return (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps


def told(rank: int, times: list[tuple[float, float]], actions: int) -> tuple[float, list[float]]:
    """Median step in seconds, and each rank's median CPU microseconds an action."""
    import torch.distributed as dist

    cpu = torch.zeros(RANKS)
    cpu[rank] = statistics.median(one[1] for one in times) / actions * 1e6
    dist.all_reduce(cpu)
    return statistics.median(one[0] for one in times), cpu.tolist()


def work(rank: int, port: int) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    with contextlib.suppress(PermissionError):
        # gloo's event thread spins on a lock: under the default scheduler two ranks on two cores measure that alone.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    dist.init_process_group("gloo", store=client(port, "torch"), rank=rank, world_size=RANKS)
    for seconds, microbatches, steps in ((0.0, MICROBATCHES, STEPS), (0.015, 8, 2)):
        runs = {
            "ours": ours(rank, port, seconds, microbatches),
            "torch": theirs(rank, seconds, microbatches),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for run in runs.values():
            run()
        for _ in range(REPEATS):
            for name, run in runs.items():
                found[name].append(measure(run, steps))
        (own_s, own), (other_s, other) = (told(rank, times, 2 * microbatches) for times in found.values())
        if rank == 0:
            print(
                f"{seconds * 1e3:.0f} ms stages, {microbatches} micro-batches: "
                f"step {own_s * 1e3:.1f} ms against {other_s * 1e3:.1f} ms, {own_s / other_s:.3f}x"
            )
            for place, (a, b) in enumerate(zip(own, other, strict=True)):
                print(f"  rank {place}: CPU {a:.1f} us against {b:.1f} us an action, {a / b:.2f}x", flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    server = TCPStore("127.0.0.1", 0, None, True, TIMEOUT, wait_for_workers=False)
    mp.start_processes(work, (server.port,), nprocs=RANKS, start_method="spawn")
