"""Mean and variance of the step time over 100 consecutive steps of one plan (JCT-21): is it as steady as it is fast?"""

import statistics
from dataclasses import dataclass

WHOLE = 100
"""Steps of one measurement."""
UNSTEADY = 0.5
"""A coefficient of variation above this is told: such steps wait for something."""
PAUSE_S = 300.0
"""Training between two such words: of a job with short steps they would bury all else that is told of it."""


@dataclass(frozen=True)
class Steadiness:
    """Of WHOLE steps: seconds, and seconds squared."""

    mean_s: float
    variance_s2: float

    @property
    def variation(self) -> float:
        """Standard deviation over mean."""
        return self.variance_s2**0.5 / self.mean_s if self.mean_s > 0 else 0.0

    @property
    def told(self) -> str:
        """A line for the user; "" where steps are steady."""
        if self.variation <= UNSTEADY:
            return ""
        return (
            f"step times vary by {self.variation:.0%} around {self.mean_s:.3g} s over the last {WHOLE} steps: "
            "something else uses a device, a link or the loader's disk now and then"
        )


class StepTimes:
    """Collects; the first step of a plan is not counted, since it warms up."""

    def __init__(self) -> None:
        self._seen: list[float] = []
        self._warm = False
        self._silent_s: float | None = None

    def take(self, step_s: float) -> Steadiness | None:
        """The measurement that this step completes."""
        if self._silent_s is not None:
            self._silent_s += step_s
        if not self._warm:
            self._warm = True
            return None
        self._seen.append(step_s)
        if len(self._seen) < WHOLE:
            return None
        seen, self._seen = self._seen, []
        return Steadiness(statistics.fmean(seen), statistics.pvariance(seen))

    def word(self, found: Steadiness) -> str:
        """What the user is to be told now; "" where that has been told lately, or steps are steady."""
        if not found.told or (self._silent_s is not None and self._silent_s < PAUSE_S):
            return ""
        self._silent_s = 0.0
        return found.told
