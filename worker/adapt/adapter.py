"""In the pilot: readings go in, the loop's instructions come out as headers of the coming steps."""

import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from policies.ir.plan import ParallelPlan
from policies.model.profile import ModelProfile
from scheduler.protocol.spec import AdaptSpec
from worker.adapt.baseline import Baseline
from worker.adapt.candidates import Candidate, Terms, best_change, bounds_of, fitting, relief
from worker.adapt.diagnosis import loader_bound, telemetry
from worker.adapt.estimate import RECENT, Estimator
from worker.adapt.forecast import Foresight
from worker.adapt.loop import (
    Acknowledged,
    Event,
    Loop,
    Observed,
    Phase,
    Plan,
    Planned,
    Prepare,
    Pressed,
    Revise,
    Say,
    Switched,
    Yielded,
)
from worker.adapt.memory import Pressure, Watch
from worker.adapt.pricing import step_s
from worker.adapt.revision import Reviser
from worker.adapt.situation import Ground, Situation
from worker.adapt.statistics import Memory, Reading

BANDWIDTH = 5e8
"""Bytes a second at which state is believed to move, until a change has shown it."""


RELIEF_AFTER_S = 1.0
"""A rank that is short of memory first puts away what it can by itself."""


class Adapter:
    """Of one generation, over its revisions. note: a line for the user. clock: monotonic seconds. known: the job
    undisturbed, from the generation before."""

    def __init__(
        self,
        spec: AdaptSpec,
        profile: ModelProfile,
        plan: ParallelPlan,
        total_steps: int,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        known: Baseline | None = None,
    ) -> None:
        self._spec, self._total_steps = spec, total_steps
        self._note, self._clock = note, clock
        self._loop = Loop(spec, plan, plan.world_size, clock())
        self._estimator = Estimator(profile, plan, known, spec.threshold)
        self._foresight = Foresight(plan.world_size, spec.threshold, RECENT)
        self._watches = [Watch(spec.watermark) for _ in range(plan.world_size)]
        self._memory: tuple[Memory, ...] = ()
        self._steps_s: deque[float] = deque(maxlen=RECENT)
        self._prepared: tuple[int, ...] = ()
        self._pressed_since = [math.inf] * plan.world_size
        self._step = 0
        self._pause_s: float | None = None
        self._wanted: Plan | None = None
        self._found: Planned | None = None
        self._expected_s: float | None = None
        self._reason: Situation | None = None
        self._told_loader = False
        self._announced = 0

    @property
    def revision(self) -> int:
        return self._loop.revision

    @property
    def baseline(self) -> Baseline | None:
        """What the next generation has to know; None before there is any."""
        return self._estimator.baseline

    def telemetry(self) -> dict[str, Any]:
        """What is measured of stages and links; empty until a baseline and some steps after it are known."""
        return telemetry(self._estimator) if self._estimator.situation is not None else {}

    def take(self, reading: Reading, step: int, step_s: float) -> None:
        """A step has ended."""
        self._estimator.take(reading)
        self._steps_s.append(step_s)
        self._foresight.take(reading.foreseen)
        self._prepared, self._memory = reading.prepared, reading.memory
        self._step = step
        if not self._told_loader and self._estimator.situation is not None:
            self._tell_loader()

    def header(self, reviser: Reviser, saving: bool) -> Prepare | Revise | None:
        """What all ranks do at this boundary; at most one thing. saving: no switch now.

        A plan is published before it is returned.
        """
        now = self._clock()
        for event in self._events(now, reviser, saving):
            for instruction in self._loop.handle(now, event):
                match instruction:
                    case Say(text):
                        self._note(text)
                    case Plan():
                        self._start_planning(instruction)
                    case Prepare(number, plan):
                        if isinstance(event, Observed):  # a cut is taken back: nothing asks for the one before
                            self._reason = None
                        self._announced = number
                        reviser.publish(number, plan)
                        return instruction
                    case Revise():
                        return instruction
        return None

    def yields(self) -> None:
        """A stop or a next generation comes first."""
        self._wanted = self._found = None
        self._loop.handle(self._clock(), Yielded())

    def switched(self, number: int, plan: ParallelPlan, dropped: str, pause_s: float) -> None:
        """The vote on a revision. plan: what runs now. pause_s: from the boundary on."""
        before = self._loop.plan
        instructions = self._loop.handle(self._clock(), Switched(number, dropped))
        for instruction in instructions:
            if isinstance(instruction, Say):
                self._note(instruction.text)
        self._steps_s.clear()
        if not dropped:
            self._pause_s = pause_s
            self._estimator.revised(plan)
            expected = f"; steps are to take {self._expected_s:.3g} s" if self._expected_s is not None else ""
            paused = f"paused {pause_s * 1e3:.0f} ms"
            self._note(f"revision {number}: {describe(before, plan)}, {self._why()}; {paused}{expected}")
            self._expected_s = None

    # --- events ---

    def _events(self, now: float, reviser: Reviser, saving: bool) -> list[Event]:
        seen, situation = self._estimator.situation, self._situation()
        events: list[Event] = []
        if seen is not None and situation is not None:
            foretold = situation.distance(seen) > self._spec.threshold
            events.append(Observed(situation, self._step_s, self._foresight.agrees(seen), foretold))
        if self._estimator.ground is not None:
            events += [Pressed(rank) for rank in self._pressed(now)]
        if self._loop.phase is Phase.PLANNING and self._found is not None:
            events.append(self._found)
            candidate, self._found = self._found.candidate, None
            self._expected_s = candidate.step_s if candidate is not None else None
            self._reason = self._wanted.situation if self._wanted is not None else None
        if self._loop.phase is Phase.PREPARING and not saving:
            events.append(self._word(reviser))
        return events

    @property
    def _step_s(self) -> float | None:
        return statistics.median(self._steps_s) if len(self._steps_s) == RECENT else None

    def _situation(self) -> Situation | None:
        """As it is seen, with what is foreseen and cannot be seen yet; None before anything is."""
        seen = self._estimator.situation
        return self._foresight.over(seen) if seen is not None else None

    def _pressed(self, now: float) -> list[int]:
        """Ranks that did not get out of it by themselves."""
        levels = [watch.take(now, memory) for watch, memory in zip(self._watches, self._memory, strict=True)]
        for rank, level in enumerate(levels):
            self._pressed_since[rank] = math.inf if level is Pressure.NONE else min(now, self._pressed_since[rank])
        return [rank for rank, since in enumerate(self._pressed_since) if now - since >= RELIEF_AFTER_S]

    def _word(self, reviser: Reviser) -> Acknowledged:
        number = self._announced
        refusing = next((rank for rank, prepared in enumerate(self._prepared) if prepared == -number), None)
        refused = reviser.refusal(number, refusing) if refusing is not None else ""
        return Acknowledged(number, self._prepared.count(number), len(self._prepared), refused)

    # --- planning, beside training ---

    def _start_planning(self, wanted: Plan) -> None:
        self._wanted = wanted
        threading.Thread(target=self._plan, args=(wanted,), name="adapt", daemon=True).start()

    def _plan(self, wanted: Plan) -> None:
        candidate = None
        try:
            candidate = self._candidate(wanted)
        finally:
            if self._wanted is wanted:
                self._found = Planned(candidate)

    def _candidate(self, wanted: Plan) -> Candidate | None:
        ground, running, home = self._estimator.ground, self._loop.plan, self._loop.home
        situation = wanted.situation.rounded(self._spec.threshold)
        assert ground is not None
        room = [
            self._spec.watermark * memory.total_bytes - memory.used_bytes if memory.total_bytes else math.inf
            for memory in self._memory
        ]
        terms = self._terms(ground, situation, fitting(running, ground, room))
        if wanted.relieve is None:
            return best_change(running, home, ground, situation, terms)
        return relief(running, home, ground, situation, terms, wanted.relieve, room)

    def _terms(self, ground: Ground, situation: Situation, fits: Callable[[ParallelPlan], bool]) -> Terms:
        seen = self._estimator.situation or situation
        timed_s = step_s(self._loop.plan, ground, seen.rounded(self._spec.threshold))
        overhead_s = max(0.0, self._step_s - timed_s) if self._step_s is not None else 0.0
        now_s = overhead_s + step_s(self._loop.plan, ground, situation)

        def allowed(plan: ParallelPlan) -> bool:
            time.sleep(0)  # between two evaluations the training thread may have the interpreter
            return fits(plan)

        return Terms(
            pause_s=self._pause_s if self._pause_s is not None else now_s / 2,
            bandwidth_bytes_per_s=BANDWIDTH,
            left_s=max(0, self._total_steps - self._step) * now_s,
            overhead_s=overhead_s,
            horizon_s=self._spec.horizon_s,
            changes_per_s=self._loop.changes_per_s,
            allowed=allowed,
        )

    # --- for the user ---

    def _tell_loader(self) -> None:
        told = loader_bound(self._estimator)
        if told:
            self._told_loader = True
            self._note(told)

    def _why(self) -> str:
        if self._wanted is not None and self._wanted.relieve is not None:
            rank = self._wanted.relieve
            return f"since rank {rank} is short of memory, {self._memory[rank].share:.0%} used"
        situation = self._reason or self._situation()  # as it was when the change was planned
        found = disturbances(situation.rounded(self._spec.threshold)) if situation is not None else []
        how = ", as its agent foresees" if self._loop.on_trust else ""
        return "since " + " and ".join(found) + how if found else "nothing disturbs any more"


def describe(before: ParallelPlan, after: ParallelPlan) -> str:
    """What changes, such as `layers 4+4+4+4 -> 5+3+4+4`."""
    said = []
    if bounds_of(before) != bounds_of(after):
        said.append(f"layers {before.sizes} -> {after.sizes}")
    shares = [[stage.shares for stage in plan.stages] for plan in (before, after)]
    if shares[0] != shares[1]:
        said.append(f"micro-batches {_shares(before)} -> {_shares(after)}")
    return ", ".join(said) or "the same cut"


def _shares(plan: ParallelPlan) -> str:
    each = ["/".join(map(str, stage.shares)) for stage in plan.stages]
    return each[0] if len(set(each)) == 1 else " ".join(each)


def disturbances(situation: Situation) -> list[str]:
    """In words, the worst first."""
    found = [(factor, f"rank {rank} computes {factor:.1f}x slower") for rank, factor in enumerate(situation.slow)]
    found += [(factor, f"messages between ranks {a} and {b} take {factor:.1f}x as long")
              for (a, b), factor in situation.links.items()]  # fmt: skip
    return [text for factor, text in sorted(found, reverse=True) if factor > 1]
