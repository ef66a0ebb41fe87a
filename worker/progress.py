"""Where a job is: what a checkpoint and the next generation carry on, besides layers."""

from dataclasses import dataclass

from scheduler.protocol.messages import Evaluation


@dataclass
class Progress:
    """step: finished steps. saved: step of the newest published checkpoint. save_begun: of the newest save at all.

    save_no: of the newest Target.save_no that was answered. loss_scale, good_steps: for float16, see `worker.scaling`.
    """

    step: int = 0
    saved: int | None = None
    save_begun: int = 0
    save_no: int = 0
    loss_scale: float = 2.0**16
    good_steps: int = 0
    first_evaluation: Evaluation | None = None
    last_evaluation: Evaluation | None = None
