"""What agents foresee of the job's devices, for as long as its own steps cannot have shown it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from worker.adapt.situation import Situation


@dataclass(frozen=True)
class Forecast:
    """Of one rank's device. ratio: how many times as long it computes; low: the low end of the interval around it.
    Both 1 where nothing is to be trusted."""

    ratio: float = 1.0
    low: float = 1.0

    def counts(self, threshold: float) -> bool:
        """Its whole interval is further than the threshold away from undisturbed."""
        return self.low > 1 + threshold


class Foresight:
    """The forecasts of all ranks over the steps of a generation.

    A forecast stands for a device's slowdown only until `steps` steps have run since it came: by then the job's own
    steps show what there is, they may be trusted more, and to count both would count one neighbour twice.
    """

    def __init__(self, ranks: int, threshold: float, steps: int) -> None:
        self._threshold, self._steps = threshold, steps
        self._newest: tuple[Forecast, ...] = (Forecast(),) * ranks
        self._since = [0] * ranks

    def take(self, forecasts: Sequence[Forecast]) -> None:
        """A step has run."""
        self._newest = tuple(forecasts)
        self._since = [
            since + 1 if forecast.counts(self._threshold) else 0
            for since, forecast in zip(self._since, self._newest, strict=True)
        ]

    def over(self, seen: Situation) -> Situation:
        """seen: by the job's own steps. The larger of both where only a forecast can know."""
        slow = (
            max(own, forecast.ratio) if 0 < since <= self._steps else own
            for own, forecast, since in zip(seen.slow, self._newest, self._since, strict=True)
        )
        return Situation(tuple(slow), seen.links, seen.load_s)

    def agrees(self, seen: Situation) -> bool:
        """Whether a forecast and the job's own steps say the same of some device."""
        slow = 1 + self._threshold
        return any(own > slow and told.ratio > slow for own, told in zip(seen.slow, self._newest, strict=True))
