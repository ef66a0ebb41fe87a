"""What one training member has for all its life: job, device, place in the attempt, checkpoint store."""

import torch

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause, Target
from worker.adapt.memory import Gauge
from worker.adapt.meter import Meter
from worker.checkpoint.store import open_store
from worker.control import Control
from worker.errors import Ended
from worker.sdk import PipelineJob


class Setting:
    """target: the member's first. store: of checkpoints, where the job has some. meter: where it may adapt."""

    def __init__(self, control: Control, job: PipelineJob, target: Target, device: torch.device) -> None:
        """Raises Ended, BAD_SPEC, for a checkpoint store that cannot be."""
        self.control, self.job, self.target, self.device = control, job, target, device
        self.number, self.spec, self.timeout_s = target.member, target.spec, target.spec.start_timeout_s
        checkpoint = target.spec.job.checkpoint
        try:
            self.store = open_store(checkpoint.dir) if checkpoint is not None else None
        except ValueError as error:
            raise Ended(Cause.BAD_SPEC, str(error)) from None
        self.meter = Meter() if target.spec.job.adapt is not None and target.spec.profile is not None else None
        self.gauge = Gauge(device)

    def check_layers(self, plan: ParallelPlan) -> None:
        """Raises Ended, PLAN_MISMATCH, for a plan of another model."""
        planned, there = plan.layer_count, len(self.job.named_layers)
        if planned != there:
            raise Ended(Cause.PLAN_MISMATCH, f"the plan cuts {planned} layers, the model has {there}")
