"""What must be so in every step, compared over all stages: a pipeline that trains wrongly often trains on in silence.

Each stage tells, on the step's all-reduce, how many micro-batches it has accumulated, how often its optimizers have
stepped since the step before, and with which rate. A stage that does less, or at another rate, is named.
"""

from collections.abc import Sequence

from scheduler.protocol.messages import Cause
from worker.errors import Ended
from worker.generation import Generation

ACCUMULATED, TRAINED, UPDATES, RATE = range(4)
"""What a stage tells: micro-batches, whether it has anything to train, optimizer steps, and at which rate."""
FACTS = 4


class Guard:
    """One rank's part. `reset` wherever all ranks begin to count anew."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self.size = FACTS * len(generation.plan.stages)
        self.reset()

    def reset(self) -> None:
        self._rate = 0.0
        self._begin_again()

    def updated(self, rate: float | None, scale: float | None) -> None:
        """Every layer here has been updated. rate: None where the optimizer's own counts. scale: of the gradients."""
        self._rate = (1.0 if rate is None else rate) * (1.0 if scale is None else scale)

    def values(self) -> dict[int, float]:
        """What this rank tells, by place: replicas add up their micro-batches, the first speaks for the rest."""
        generation, found = self._generation, {}
        for index, stage in generation.stages.items():
            base = FACTS * index
            found[base + ACCUMULATED] = float(stage.accumulated)
            counts = [layer.updates for layer in stage.layers if layer.optimizer is not None]
            if generation.plan.stages[index].ranks[0] == generation.rank and counts:
                found |= {base + TRAINED: 1.0, base + UPDATES: float(min(counts)), base + RATE: self._rate}
        self._begin_again()
        return found

    def check(self, summed: Sequence[float], step: int, units: int) -> None:
        """summed: `size` values over all ranks. units: micro-batches (or slices) that every stage has accumulated.

        Raises:
            Ended: USER_EXCEPTION, naming the stage and what differs.
        """
        facts = [summed[base : base + FACTS] for base in range(0, self.size, FACTS)]
        for index, fact in enumerate(facts):
            if round(fact[ACCUMULATED]) != units:
                raise _wrong(step, f"stage {index} accumulated {fact[ACCUMULATED]:.0f} micro-batches of {units}")
        for place, name in ((UPDATES, "optimizer steps"), (RATE, "learning rates")):
            told = {index: fact[place] for index, fact in enumerate(facts) if fact[TRAINED]}
            if len(set(told.values())) > 1:
                each = ", ".join(f"{value:g} on stage {index}" for index, value in told.items())
                raise _wrong(step, f"{name} differ: {each}")

    def _begin_again(self) -> None:
        for stage in self._generation.stages.values():
            stage.accumulated = 0
        for layer in self._generation.layers:
            layer.updates = 0


def _wrong(step: int, what: str) -> Ended:
    return Ended(
        Cause.USER_EXCEPTION,
        f"step {step}: {what}; what was trained since the last checkpoint cannot be trusted. A learning_rate that "
        "depends on the process does this, and code that patches the worker",
    )
