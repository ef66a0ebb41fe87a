"""What a step sends, receives and computes is planned once; a step only replays it (SUR-04)."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.schedules.catalogue import make_schedule
from policies.schedules.lowering import lower
from worker import PipelineJob, TensorData, executor
from worker.executor import Executor, message_tags
from worker.layer import Layer
from worker.shapes import Shape
from worker.stage import Stage

WIDTH, MICROBATCHES, RANKS = 4, 6, 3
CPU = torch.device("cpu")


class Recording:
    """A group whose peers answer at once. posted: what this rank posted, in order, with the shapes."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, int, int, tuple[int, ...]]] = []

    def send(self, tensor: Tensor, peer: int, tag: int) -> None:
        self.posted.append(("send", peer, tag, tuple(tensor.shape)))

    def receive(self, tensor: Tensor, peer: int, tag: int) -> None:
        self.posted.append(("receive", peer, tag, tuple(tensor.shape)))
        tensor.fill_(1.0)

    def finish(self, work: Any) -> None:
        pass


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_every_step_posts_the_same_messages_and_nothing_is_planned_again(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = lower(make_schedule(schedule, RANKS, MICROBATCHES))
    job = PipelineJob(
        layers=[nn.Linear(WIDTH, WIDTH)],
        loss=nn.functional.mse_loss,
        data=TensorData(torch.zeros(2, WIDTH), torch.zeros(2, WIDTH)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        global_batch=2,
        total_steps=1,
    )
    stage = Stage([Layer(job, 0, CPU)], None, 0, CPU)
    stage.split_backward()
    group, shapes = Recording(), {index: [Shape((1, WIDTH), torch.float32)] for index in (1, 2)}
    made = Executor(programs[1], {1: stage}, RANKS - 1, group, message_tags(programs), shapes, CPU)  # type: ignore[arg-type]
    monkeypatch.setattr(executor, "posted_ahead", None)
    monkeypatch.setattr(executor, "message_tags", None)
    steps = []
    for step in range(3):
        group.posted.clear()
        made.run(None, step, 1.0)  # type: ignore[arg-type]
        steps.append(list(group.posted))
        assert stage.accumulated == (step + 1) * MICROBATCHES
    assert steps[0] == steps[1] == steps[2]
    assert len(steps[0]) == len(set(steps[0])) == 4 * MICROBATCHES, "in and out, forward and backward, each once"
