"""The measurements of a calibration: a pipeline alone and beside each situation in turn, sampled as agents sample."""

import itertools
import random
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agent.devices.cpu import CpuSlots
from agent.forest.features import Features, Gang, Values
from agent.forest.interferer import KINDS
from agent.forest.model import Hardware
from agent.forest.rows import Rows, Situation, collect
from agent.forest.schema import NODE
from agent.forest.workbench import LINK, BrokenBench, Disturbance, Pipeline, Step, disturbed, pipeline
from agent.telemetry.members import Members
from agent.telemetry.sampler import EVERY_S, Sampler
from scheduler.protocol.messages import DeviceInfo

BATCHES = (16, 32, 64, 128)
RESTS = (0.0, 0.0, 1.0, 3.0)
"""How long pipelines sleep between steps, as multiples of their work: jobs are not all bound by their devices."""
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
TOGETHER = (1, 1, 1, 2, 2, 3)
"""How many disturbances at once, as often as they are drawn."""
SITUATION_S, ALONE_S, SETTLE_S = 3.0, 1.5, 0.5
EACH = 4
"""Situations that a pipeline goes through before another batch size has its turn."""
ROUND_S = EACH * (SITUATION_S + ALONE_S + 2 * EVERY_S) + ALONE_S + 3 * SETTLE_S
CPU_QUANTILE, WAIT_QUANTILE = 0.2, 0.05
"""Of the steps that were measured alone: on a machine that others use too, not all of them were."""
MOST = 20.0
"""A stage that is starved makes no whole step in a sampling period: beyond this, a slowdown is not measured by it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One sample of all devices."""

    at_s: float
    batch: int
    disturbances: tuple[Disturbance, ...]
    values: tuple[Values, ...]


@dataclass(slots=True)
class Record:
    """What was measured. steps: by batch size and stage, in order of time."""

    moments: list[Moment] = field(default_factory=list)
    steps: dict[tuple[int, int], list[Step]] = field(default_factory=dict)


class Bench:
    """This machine as an agent sees it, with one CPU device a core."""

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = tuple(cores)
        slots = tuple(DeviceInfo(id=f"core-{core}", kind="cpu", index=at) for at, core in enumerate(cores))
        self._ids = [slot.id for slot in slots]
        self._sampler = Sampler(CpuSlots(slots, cores=cores), slots)
        self._members, self._features = Members(), Features()
        self._next_s = time.monotonic()

    def sample(self, job: Pipeline, batch: int, disturbances: tuple[Disturbance, ...]) -> Moment:
        """At the next tick."""
        time.sleep(max(0.0, self._next_s - time.monotonic()))
        now_s = time.monotonic()
        self._next_s = now_s + EVERY_S
        pids = dict(zip(self._ids, job.pids, strict=True))
        gangs: dict[str, Gang] = dict.fromkeys(pids, (1, 1))
        own = self._members.read(pids)
        found = self._features.of(self._sampler.tick(), now_s, own, gangs)
        return Moment(now_s, batch, disturbances, tuple(found[id] for id in self._ids))

    def watch(
        self, job: Pipeline, batch: int, seconds: float, disturbances: tuple[Disturbance, ...] = ()
    ) -> Iterator[Moment]:
        """The first sample covers what was before, and is left out."""
        self.sample(job, batch, disturbances)
        for _ in range(round(seconds / EVERY_S)):
            yield self.sample(job, batch, disturbances)


def draw(seed: int, cores: Sequence[int], kinds: Sequence[str]) -> Iterator[tuple[Disturbance, ...]]:
    """Situations without end: every kind alone at first, then one to three at random."""
    chance = random.Random(seed)

    def one(kind: str) -> Disturbance:
        return Disturbance(kind, chance.choice(STRENGTHS), None if kind == LINK else chance.choice(cores))

    alone = list(kinds)
    chance.shuffle(alone)
    for kind in alone:
        yield (one(kind),)
    while True:
        chosen = chance.sample(kinds, min(len(kinds), chance.choice(TOGETHER)))
        yield tuple(one(kind) for kind in sorted(chosen))


def measure(cores: Sequence[int], minutes: float, seed: int, shapes_links: bool) -> Iterator[Record]:
    """The record after each round, until the time is up; at least two rounds, so that there are two batch sizes."""
    kinds = [*KINDS, *([LINK] if shapes_links else [])]
    situations = draw(seed, cores, kinds)
    batches = list(BATCHES)
    random.Random(seed).shuffle(batches)
    record, bench = Record(), Bench(cores)
    rounds = max(2, int(60 * minutes / ROUND_S))
    chance = random.Random(seed)
    for batch in itertools.islice(itertools.cycle(batches), rounds):
        _round(bench, batch, chance.choice(RESTS), itertools.islice(situations, EACH), record)
        yield record


def _round(
    bench: Bench, batch: int, rest: float, situations: Iterator[tuple[Disturbance, ...]], record: Record
) -> None:
    with pipeline(bench.cores, batch, rest) as job:
        time.sleep(SETTLE_S)
        record.moments += bench.watch(job, batch, ALONE_S)
        for disturbances in situations:
            with disturbed(disturbances):
                record.moments += bench.watch(job, batch, SITUATION_S, disturbances)
            record.moments += bench.watch(job, batch, ALONE_S)
        if not job.steps:
            raise BrokenBench("the pipeline made no step")
        for step in list(job.steps):
            record.steps.setdefault((batch, step.stage), []).append(step)


def as_rows(record: Record, hardware: Hardware) -> Rows:
    """One row a device and sample. Its slowdown: the time that its stage computes, sends, or waits for its core in a
    step around then, over that of undisturbed steps."""
    free = _free_s(record)
    ends = {key: [step.end_s for step in steps] for key, steps in record.steps.items()}
    found: list[tuple[Mapping[str, float | None], float, Situation]] = []
    for moment in record.moments:
        situation = _situation(moment)
        for stage, values in enumerate(moment.values):
            key = moment.batch, stage
            slowdown = _around(record.steps[key], ends[key], moment.at_s, free[key])
            if slowdown is not None and slowdown <= MOST:
                found.append((values, slowdown, situation))
    return collect(NODE, hardware, found)


def _situation(moment: Moment) -> Situation:
    kinds = "+".join(sorted(one.kind for one in moment.disturbances)) or "alone"
    return Situation(kinds, moment.batch, ", ".join(map(str, moment.disturbances)))


def _free_s(record: Record) -> dict[tuple[int, int], float]:
    """By batch size and stage: the busy time of an undisturbed step, on a core and off it (while it sends)."""
    calm = [one.at_s for one in record.moments if not one.disturbances]

    def is_alone(step: Step) -> bool:
        after = bisect_left(calm, step.end_s)
        return after < len(calm) and calm[after] - EVERY_S <= step.end_s

    free = {}
    for key, steps in record.steps.items():
        alone = [step for step in steps if is_alone(step)] or steps
        waits = [max(0.0, step.busy_s - step.cpu_s) for step in alone]
        free[key] = float(np.quantile([step.cpu_s for step in alone], CPU_QUANTILE) + np.quantile(waits, WAIT_QUANTILE))
    return free


def _around(steps: Sequence[Step], ends: Sequence[float], at_s: float, free_s: float) -> float | None:
    """The mean of the steps of the last sampling period, those at its ends by their parts inside."""
    total = count = 0.0
    for step in map(steps.__getitem__, range(bisect_left(ends, at_s - EVERY_S), len(steps))):
        first = step.end_s - step.step_s
        if first >= at_s:
            break
        part = (min(step.end_s, at_s) - max(first, at_s - EVERY_S)) / step.step_s
        total, count = total + part * step.busy_s, count + part
    return total / count / free_s if count > 0 else None
