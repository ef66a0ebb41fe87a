"""How much longer a step takes on a device because of whoever else uses it or its links."""

from enum import StrEnum

import msgspec


class Source(StrEnum):
    """Where a slowdown is known from: predicted from counters by a forest, or observed in step times."""

    FOREST = "forest"
    OBSERVED = "observed"


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device, by its id. ratio: step time over the interference-free step time of the same plan, at least 1.

    low, high: an interval that holds the true ratio nine times in ten. confidence: 0 (a guess) to 1. contested: the
    ratio is high and has been for a while; it has a hysteresis, so that deciding by it does not flap. stage_ratio,
    stage_low: the same of the time alone in which the member there computes, for the pipeline itself: who moves layers
    counts what they cost, not what a step feels of it. Unknown where only steps tell.
    """

    device: str
    ratio: float
    low: float
    high: float
    confidence: float
    source: Source
    contested: bool = False
    stage_ratio: float | None = None
    stage_low: float | None = None
