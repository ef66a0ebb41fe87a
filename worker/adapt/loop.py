"""The loop that adapts a job, as a pure state machine: monitor, evaluate, plan, dispatch, execute and confirm.

Events and the time go in, instructions come out. One change at a time; whoever runs the instructions answers each Plan
with Planned, each Prepare with Acknowledged, each Revise with Switched. A missing acknowledgement leaves the job where
it is: on the last partition that was confirmed.
"""

from dataclasses import dataclass
from enum import StrEnum

from policies.ir.plan import ParallelPlan
from scheduler.protocol.spec import AdaptSpec
from worker.adapt.candidates import Candidate
from worker.adapt.situation import Situation

CONFIRMING_STEPS = 10
FORESEEN = 0.5
"""Where two ways of looking agree, so much of the time to hold is enough."""
WORSE = 1.05
"""A confirmed change takes at most this factor of the step time before it."""


class Phase(StrEnum):
    MONITORING = "monitoring"
    PLANNING = "planning"
    PREPARING = "preparing"
    REVISING = "revising"
    CONFIRMING = "confirming"


# --- events ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Observed:
    """A step has ended. step_s: smoothed; None while too few steps of this plan have run. foreseen: an agent that looks
    at counters says the same of a device that is seen to be slow. foretold: the situation holds what an agent foresees
    and the job's own steps do not show yet."""

    situation: Situation
    step_s: float | None
    foreseen: bool = False
    foretold: bool = False


@dataclass(frozen=True)
class Pressed:
    """A rank is about to run out of memory."""

    rank: int


@dataclass(frozen=True)
class Planned:
    """What planning has found; None: nothing that pays."""

    candidate: Candidate | None


@dataclass(frozen=True)
class Acknowledged:
    """Ranks that have prepared the revision, of so many; refused: why one of them cannot, else empty."""

    revision: int
    prepared: int
    ranks: int
    refused: str = ""


@dataclass(frozen=True)
class Switched:
    """The vote of all ranks. dropped: why they stayed where they were; empty where the revision runs."""

    revision: int
    dropped: str = ""


@dataclass(frozen=True)
class Yielded:
    """A stop or a next generation comes first (LIFECYCLE 23)."""


Event = Observed | Pressed | Planned | Acknowledged | Switched | Yielded

# --- instructions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Look for a better plan as things are. relieve: a rank that must hold less than now."""

    situation: Situation
    relieve: int | None = None


@dataclass(frozen=True)
class Prepare:
    """Every rank makes ready for the plan while it trains."""

    revision: int
    plan: ParallelPlan


@dataclass(frozen=True)
class Revise:
    """All ranks are ready: switch at the next boundary."""

    revision: int


@dataclass(frozen=True)
class Say:
    """A line for the user."""

    text: str


Instruction = Plan | Prepare | Revise | Say


# --- the loop ----------------------------------------------------------------------------------------------------


class Loop:
    """revision: of the running plan; 0 is the one that the job was given. home: the plan for undisturbed times.
    on_trust: what is planned, or was changed last, rests on a forecast.

    Durations and `now` in seconds.
    """

    def __init__(self, spec: AdaptSpec, plan: ParallelPlan, ranks: int, now: float) -> None:
        self._spec, self.home, self.plan = spec, plan, plan
        self._kept: ParallelPlan | None = None
        self.phase = Phase.MONITORING
        self.revision = 0
        self.changes: list[float] = []
        self._planned_for = Situation((1.0,) * ranks)
        self._situation = self._weighed = self._planned_for
        self._step_s: float | None = None
        self._disturbed_since: float | None = None
        self._cool_at = self._relief_at = now
        self._numbers = 0
        self._stable = plan
        self._next: ParallelPlan | None = None
        self._waits_until = 0.0
        self._before_s: float | None = None
        self._confirmed_steps = 0
        self._undoing = self._relieving = self._foretold = self.on_trust = False

    @property
    def changes_per_s(self) -> float:
        """How often the situation has called for a change so far; 0 until it has twice."""
        if len(self.changes) < 2:
            return 0.0
        return (len(self.changes) - 1) / max(1e-9, self.changes[-1] - self.changes[0])

    def handle(self, now: float, event: Event) -> list[Instruction]:
        match event:
            case Observed():
                self._situation, self._foretold = event.situation, event.foretold
                return self._observed(now, event)
            case Pressed(rank):
                return self._relieve(now, rank) if self.phase in (Phase.MONITORING, Phase.CONFIRMING) else []
            case Planned(candidate):
                return self._take_plan(now, candidate) if self.phase is Phase.PLANNING else []
            case Acknowledged():
                return self._take_word(now, event) if self.phase is Phase.PREPARING else []
            case Switched():
                return self._switched(now, event) if self.phase is Phase.REVISING else []
            case Yielded():
                if self.phase in (Phase.PLANNING, Phase.PREPARING):
                    self._rest(now, 0.0)
                return []

    # --- monitor and evaluate ---

    def _observed(self, now: float, event: Observed) -> list[Instruction]:
        step_s, held_s = event.step_s, self._spec.held_s * (FORESEEN if event.foreseen else 1.0)
        if self.phase is Phase.PREPARING and now >= self._waits_until:
            self._rest(now, self._spec.cooldown_s)
            late = f"not all ranks were ready within {self._spec.ack_s:.0f} s"
            return [Say(f"revision {self._numbers} is dropped: {late}; the cut stays as it is")]
        if self.phase is Phase.CONFIRMING:
            return self._confirm(now, step_s)
        if self.phase is not Phase.MONITORING:
            return []
        self._step_s = step_s
        if not self._calls_for_change():
            self._disturbed_since = None
            return []
        if self._disturbed_since is None:
            self._disturbed_since = now
        if now - self._disturbed_since < held_s or now < self._cool_at:
            return []
        return self._plan(None)

    def _calls_for_change(self) -> bool:
        """Things differ from what the running plan was made for; or nothing disturbs, and it is not the first plan."""
        threshold = self._spec.threshold
        if self._situation.distance(self._planned_for) > threshold:
            return True
        return self.plan not in (self.home, self._kept) and self._situation.rounded(threshold).calm

    def _relieve(self, now: float, rank: int) -> list[Instruction]:
        """Memory does not wait for a cooldown; but what did not help is not tried again at once."""
        if now < self._relief_at:
            return []
        self._relief_at = now + max(self._spec.held_s, self._spec.ack_s)
        self._stable = self.plan  # the one before is not gone back to: nobody knows that it would fit
        return self._plan(rank)

    def _plan(self, relieve: int | None) -> list[Instruction]:
        self.phase, self._weighed, self._relieving = Phase.PLANNING, self._situation, relieve is not None
        self.on_trust = self._foretold and not self._relieving
        return [Plan(self._situation, relieve)]

    def _take_plan(self, now: float, candidate: Candidate | None) -> list[Instruction]:
        if candidate is None:
            self._planned_for, self._kept = self._weighed, self.plan  # only a further change of things is news
            self._rest(now, 0.0)
            return []
        self._before_s, self._undoing = None if self._relieving or self.on_trust else self._step_s, False
        return self._dispatch(now, candidate.plan)

    # --- dispatch, execute and confirm ---

    def _dispatch(self, now: float, plan: ParallelPlan) -> list[Instruction]:
        self.phase = Phase.PREPARING
        self._numbers += 1
        self._next, self._waits_until = plan, now + self._spec.ack_s
        return [Prepare(self._numbers, plan)]

    def _take_word(self, now: float, word: Acknowledged) -> list[Instruction]:
        if word.revision != self._numbers:
            return []
        if word.refused:
            self._planned_for = self._weighed
            self._rest(now, self._spec.cooldown_s)
            return [Say(f"revision {word.revision} is dropped: {word.refused}")]
        if word.prepared < word.ranks:
            return []
        self.phase = Phase.REVISING
        return [Revise(word.revision)]

    def _switched(self, now: float, switched: Switched) -> list[Instruction]:
        if switched.dropped:
            self._rest(now, self._spec.cooldown_s)
            return [Say(f"revision {switched.revision} is dropped: {switched.dropped}; the cut stays as it is")]
        assert self._next is not None
        self.plan, self.revision = self._next, switched.revision
        self._planned_for = self._weighed
        if self._relieving:
            self.home = self.plan  # the first one does not fit any more
        self.changes.append(now)
        self._rest(now, self._spec.cooldown_s)
        self.phase, self._confirmed_steps = Phase.CONFIRMING, 0
        if self._undoing:
            self._settle()
        return []

    def _confirm(self, now: float, step_s: float | None) -> list[Instruction]:
        """A cut that turns out worse than the one before, as things still are, is taken back at once; and so is one
        that rests on a forecast which has not come true."""
        self._confirmed_steps += step_s is not None
        if self._confirmed_steps < CONFIRMING_STEPS or step_s is None:
            return []
        if self.on_trust and self._situation.rounded(self._spec.threshold).calm:
            return self._undo(now, "what its agent foresaw has not come")
        as_it_was = self._situation.distance(self._planned_for) <= self._spec.threshold
        if self._before_s is not None and step_s > self._before_s * WORSE and as_it_was:
            return self._undo(now, f"steps take {step_s:.3g} s, before the change {self._before_s:.3g} s")
        self._settle()
        return []

    def _undo(self, now: float, why: str) -> list[Instruction]:
        if self.on_trust:
            self._weighed, self.on_trust = self._situation, False
        self._undoing = True
        return [Say(f"revision {self.revision} is taken back: {why}"), *self._dispatch(now, self._stable)]

    def _settle(self) -> None:
        self._stable = self.plan
        self.phase = Phase.MONITORING

    def _rest(self, now: float, cool_s: float) -> None:
        self.phase = Phase.MONITORING
        self._next, self._disturbed_since = None, None
        self._cool_at = max(self._cool_at, now + cool_s)
