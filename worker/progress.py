"""Where a job is: what a checkpoint and the next generation carry on, besides layers."""

from dataclasses import dataclass

from scheduler.protocol.messages import Evaluation


@dataclass
class Progress:
    """step: finished steps. saved: step of the newest published checkpoint. save_begun: of the newest save at all.

    save_no: of the newest Target.save_no that was answered.
    """

    step: int = 0
    saved: int | None = None
    save_begun: int = 0
    save_no: int = 0
    first_evaluation: Evaluation | None = None
    last_evaluation: Evaluation | None = None
