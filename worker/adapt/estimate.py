"""From readings of steps to what the job is like undisturbed, and what disturbs it now. Pure: no clock, no I/O."""

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from policies.cost import LayerCosts
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind, Link
from policies.model.profile import LayerProfile, ModelProfile
from worker.adapt.baseline import Baseline
from worker.adapt.forecast import Forecast
from worker.adapt.meter import StageTimes
from worker.adapt.situation import Ground, Pair, Situation, pair_of
from worker.adapt.statistics import Reading

WARM_UP, BASELINE = 3, 10
"""Steps that are not looked at, and steps that then tell what the job is like undisturbed."""
RECENT = 5
"""Steps whose median tells what disturbs now."""
STAMPED = 3
"""Stamped steps whose median tells a link's transfer time."""
SLIGHT = 0.02
"""A transfer that takes longer by less than this share of a stage's computing disturbs nobody."""


class Links:
    """One-way transfer times from messages of both directions, in which the offset of two clocks cancels."""

    def __init__(self) -> None:
        self._fastest: dict[tuple[int, int, int], deque[float]] = {}
        self._offset_s: dict[Pair, float] = {}

    def take(self, reading: Reading) -> None:
        """The fastest message of a step waited for nobody."""
        fastest: dict[tuple[int, int, int], float] = {}
        for passage in reading.passages:
            way = passage.route.source, passage.route.destination, passage.route.size_bytes
            fastest[way] = min(passage.seconds, fastest.get(way, passage.seconds))
        for way, seconds in fastest.items():
            self._fastest.setdefault(way, deque(maxlen=STAMPED)).append(seconds)

    def forget(self) -> None:
        self._fastest.clear()

    def transfers_s(self) -> dict[Pair, tuple[int, float]]:
        """By pair of ranks: the size of its messages in bytes, and seconds one way."""
        found: dict[Pair, tuple[int, float]] = {}
        for (source, destination, size), seen in self._fastest.items():
            if len(seen) < STAMPED:
                continue
            pair, there = pair_of(source, destination), statistics.median(seen)
            back = self._fastest.get((destination, source, size), ())
            if len(back) == STAMPED:
                offset = (there - statistics.median(back)) / 2
                self._offset_s[pair] = offset if (source, destination) == pair else -offset
            if pair not in self._offset_s:  # two machines' clocks may be days apart
                continue
            known = self._offset_s[pair]
            seconds = there - (known if (source, destination) == pair else -known)
            if seconds > 0 and (pair not in found or size > found[pair][0]):
                found[pair] = size, seconds
        return found


@dataclass
class Estimator:
    """profile: of the layers, as they were probed; its proportions count within a stage, the job's own baseline
    between stages. plan: what runs. known: what an earlier generation has found undisturbed. threshold: a share by
    which a device is slower is noise. ground: None until the baseline is known."""

    profile: ModelProfile
    plan: ParallelPlan
    known: Baseline | None = None
    threshold: float = 0.2
    ground: Ground | None = None
    links: Links = field(default_factory=Links)
    load_s: float = 0.0
    _steps: int = 0
    _recent: dict[tuple[int, int], deque[StageTimes]] = field(default_factory=dict)
    _situation: Situation | None = None
    _foreseen: deque[tuple[Forecast, ...]] = field(default_factory=lambda: deque(maxlen=BASELINE))

    def take(self, reading: Reading) -> None:
        """A step has run."""
        self._steps += 1
        if self._steps <= WARM_UP and self.ground is None:
            return
        length = BASELINE if self.ground is None else RECENT
        for holder, times in reading.times.items():
            self._recent.setdefault(holder, deque(maxlen=length)).append(times)
        self.links.take(reading)
        self._foreseen.append(reading.foreseen)
        if self.ground is None and self._steps >= WARM_UP + BASELINE:
            self.ground = self._calibrated()
            self._recent.clear()
        elif self.ground is not None and self._full:
            self._situation = self._now(self.ground)

    def revised(self, plan: ParallelPlan) -> None:
        """Another plan runs: its stages are looked at anew; what is known of devices and links stays."""
        self.plan = plan
        self._recent.clear()
        self.links.forget()

    @property
    def situation(self) -> Situation | None:
        """What disturbs now; None until a baseline and some steps after it are known."""
        return self._situation

    @property
    def _full(self) -> bool:
        return bool(self._recent) and all(len(seen) == RECENT for seen in self._recent.values())

    def times(self, stage: int, rank: int) -> StageTimes:
        """Medians of the recent steps."""
        return _median(self._recent.get((stage, rank), ()))

    @property
    def baseline(self) -> Baseline | None:
        """For the next generation."""
        if self.ground is None:
            return self.known
        return Baseline(replace(self.profile, layers=self.ground.costs.layers), self.ground.links)

    # --- undisturbed ---

    def _calibrated(self) -> Ground:
        layers: list[LayerProfile] = []
        costs, slow = LayerCosts(self.profile), self._slow_already()
        for index, stage in enumerate(self.plan.stages):
            measured = [(self.times(index, rank), slow[rank]) for rank in stage.ranks]
            forward_s = statistics.median(times.forward_s / factor for times, factor in measured)
            backward_s = statistics.median(times.backward_s / factor for times, factor in measured)
            own, count = costs.stage(stage.first, stage.stop), len(stage.layers)
            if stage.recompute:
                backward_s = max(0.0, backward_s - forward_s)
            layers += [
                _scaled(layer, own.forward_s, forward_s, own.compute_s - own.forward_s, backward_s, count)
                for layer in self.profile.layers[stage.first : stage.stop]
            ]
        profile = replace(self.profile, layers=tuple(layers))
        return Ground(LayerCosts(profile), DeviceKind(self.profile.device_kind), self._usual_links())

    def _slow_already(self) -> list[float]:
        """By rank: how many times as long it computed while the baseline was taken as it would have undisturbed.

        An earlier generation knows it, up to what the new shape changes for all alike: the middle of all ranks. Without
        one a forecast may.
        """
        if self.known is None or not self.known.fits(self.profile):
            of_ranks = zip(*self._foreseen, strict=True)
            return [statistics.median(self._told(forecast) for forecast in told) for told in of_ranks]
        ratios = self._ratios(LayerCosts(self.known.profile))
        usual = statistics.median_low(ratios)
        return [ratio / usual if ratio > usual * (1 + self.threshold) else 1.0 for ratio in ratios]

    def _told(self, forecast: Forecast) -> float:
        return forecast.ratio if forecast.counts(self.threshold) else 1.0

    def _usual_links(self) -> dict[Pair, Link]:
        """A link that is slower than an earlier generation found it is not taken for what it should be."""
        found = dict(self.known.links) if self.known is not None else {}
        for pair, (size, seconds) in self.links.transfers_s().items():
            known = found.get(pair)
            if known is None or seconds <= known.transfer_s(size) * (1 + self.threshold):
                found[pair] = _link(size, seconds)
        return found

    # --- now ---

    def _now(self, ground: Ground) -> Situation:
        self.load_s = max((self.times(0, rank).load_s for rank in self.plan.stages[0].ranks), default=0.0)
        slowest_s = max(self._measured_s(rank) for rank in range(self.plan.world_size))
        return Situation(tuple(self._ratios(ground.costs)), self._slow_links(ground, slowest_s), self.load_s)

    def _ratios(self, costs: LayerCosts) -> list[float]:
        """By rank: what its stages were measured to compute over what their layers cost."""
        found = []
        for rank in range(self.plan.world_size):
            measured = self._measured_s(rank)
            expected = sum(self._expected_s(costs, index) for index in self._held(rank))
            found.append(measured / expected if expected > 0 and measured > 0 else 1.0)
        return found

    def _held(self, rank: int) -> list[int]:
        return [index for index, stage in enumerate(self.plan.stages) if rank in stage.ranks]

    def _measured_s(self, rank: int) -> float:
        return sum(self.times(index, rank).compute_s for index in self._held(rank))

    def _expected_s(self, costs: LayerCosts, index: int) -> float:
        stage = self.plan.stages[index]
        own = costs.stage(stage.first, stage.stop)
        return own.compute_s + (own.forward_s if stage.recompute else 0.0)

    def _slow_links(self, ground: Ground, slowest_s: float) -> dict[Pair, float]:
        """A link that no message has crossed lately is believed to be as it was."""
        found = dict(self._situation.links) if self._situation is not None else {}
        for pair, (size, seconds) in self.links.transfers_s().items():
            if pair not in ground.links:
                self.ground = ground = replace(ground, links={**ground.links, pair: _link(size, seconds)})
            usual_s = ground.links[pair].transfer_s(size)
            found[pair] = seconds / usual_s if abs(seconds - usual_s) > SLIGHT * slowest_s else 1.0
        return found


def _median(seen: Iterable[StageTimes]) -> StageTimes:
    times = list(seen)
    if not times:
        return StageTimes()
    return StageTimes(
        statistics.median(one.forward_s for one in times),
        statistics.median(one.backward_s for one in times),
        statistics.median(one.load_s for one in times),
    )


def _scaled(
    layer: LayerProfile, probed_f: float, forward_s: float, probed_b: float, backward_s: float, count: int
) -> LayerProfile:
    """The layer's share of what its stage was measured to take; equal shares where the probe saw nothing."""
    own_f = layer.forward_s / probed_f * forward_s if probed_f > 0 else forward_s / count
    share = layer.backward_s / probed_b if probed_b > 0 else 1 / count
    own_b = share * backward_s
    of_input = layer.backward_input_s / layer.backward_s if layer.backward_s > 0 else 0.5
    return replace(layer, forward_s=own_f, backward_input_s=own_b * of_input, backward_weight_s=own_b * (1 - of_input))


def _link(size_bytes: int, seconds: float) -> Link:
    """One size cannot tell latency from bandwidth: a usual latency is believed, the rest is bandwidth."""
    latency_s = min(Link().latency_s, seconds / 2)
    return Link(latency_s, size_bytes / (seconds - latency_s))
