"""Fake members: they train nothing and only consume time, as their plan and profile say. Pure functions of time.

Agents run them on fake devices, simulations under a virtual clock; both see the same lives.
"""

import math
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import lru_cache

from msgspec.structs import replace

from policies.cost import LayerCosts, profile_at
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind
from policies.model.profile import LayerProfile, ModelProfile
from policies.pricing import price
from scheduler.protocol.messages import Cause, Phase, Report, Stop, Target

LAYERS, STEPS, BATCH = 8, 100, 8
FORWARD_S = 0.01
START_S = 0.2
STORE = "fake:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMember:
    """A fake member's whole past. Times in seconds of one clock that never goes back.

    start_s: what its start-up takes. joined_s: when it was told the generation's store, which is when training
    begins. stopped_s: when it was told to stop; `target.want` says how. profile: the job's own, where it names one;
    else equal layers are made up.
    """

    target: Target
    kind: str
    spawned_s: float
    profile: ModelProfile | None = None
    start_s: float = START_S
    joined_s: float | None = None
    stopped_s: float | None = None

    def told(self, target: Target, now_s: float) -> "FakeMember":
        """The member after a new Target."""
        joined, stopped = self.joined_s, self.stopped_s
        if joined is None and target.store is not None:
            joined = now_s
        if stopped is None and isinstance(target.want, Stop):
            stopped = now_s
        return changed(self, target=target, joined_s=joined, stopped_s=stopped)


def report_at(member: FakeMember, now_s: float) -> Report:
    """What the member is at a moment: a pure function, so a restarted agent finds its fakes where they would be."""
    target = member.target
    spec = target.spec
    seq = 1 + int((now_s - member.spawned_s) * 1000)
    report = Report(
        job=target.job, attempt=target.attempt, member=target.member, seq=seq, generation=target.generation,
        phase=Phase.JOINING, store=STORE if target.member == target.pilot else None,
    )
    if (killed := _killed_s(member)) is not None and now_s >= killed:
        return replace(report, phase=Phase.GONE, signal=9, cause=Cause.KILLED)
    if spec.kind == "probe":
        return _probe(member, report, now_s)
    if spec.kind == "command" and member.joined_s is not None:
        return _command(member, report, member.joined_s, now_s)
    return report if member.joined_s is None or target.plan is None else _train(member, report, target.plan, now_s)


def _command(member: FakeMember, report: Report, begun_s: float, now_s: float) -> Report:
    """It takes its total of steps, and ends at once when it is told to stop."""
    total = member.target.spec.job.total_steps or STEPS
    ends_s = begun_s + total * FORWARD_S
    if member.stopped_s is not None and member.stopped_s < min(ends_s, now_s):
        return replace(report, phase=Phase.GONE, exit_code=0, cause=Cause.STOPPED)
    if now_s >= ends_s:
        return replace(report, phase=Phase.GONE, exit_code=0, cause=Cause.FINISHED)
    return replace(report, phase=Phase.TRAINING, step=int((now_s - begun_s) / FORWARD_S))


def _killed_s(member: FakeMember) -> float | None:
    """A stop without grace, or one that finds the member before its training, ends it at once."""
    want = member.target.want
    if member.stopped_s is None or not isinstance(want, Stop):
        return None
    waiting = member.joined_s is None or member.stopped_s < member.joined_s + member.start_s
    return member.stopped_s if want.grace_s == 0 or waiting or member.target.spec.kind == "probe" else None


def _probe(member: FakeMember, report: Report, now_s: float) -> Report:
    if now_s < member.spawned_s + member.start_s:
        return replace(report, phase=Phase.PROBING)
    job = member.target.spec.job
    batch = job.global_batch or BATCH
    sizes = [size for size in range(1, batch + 1) if batch % size == 0]
    profiles = tuple(_profile(member.profile, member.kind, size) for size in sizes)
    return replace(
        report, phase=Phase.GONE, exit_code=0, cause=Cause.PROBE_DONE, fingerprint="fake", global_batch=batch,
        total_steps=job.total_steps or STEPS, profiles=profiles,
    )


def _train(member: FakeMember, report: Report, plan: ParallelPlan, now_s: float) -> Report:
    spec = member.target.spec
    total, first = spec.job.total_steps or STEPS, spec.saved_step or 0
    begun, step_s, last = _course(member, plan)
    step = min(last, first + max(0, int((now_s - begun) / step_s)))
    pilot = member.target.member == member.target.pilot
    report = replace(
        report, phase=Phase.TRAINING if now_s >= begun else Phase.LOADING, resumed_step=first, fingerprint="fake",
        total_steps=total, global_batch=plan.global_batch, step=step if pilot else None,
        step_time_s=step_s if pilot and step > first else None, loss=fake_loss(step) if pilot else None,
    )
    if now_s < begun or step < last:
        return report
    want = member.target.want
    save = step == total or (isinstance(want, Stop) and want.save)
    return replace(
        report, phase=Phase.GONE, exit_code=0, cause=Cause.FINISHED if step == total else Cause.STOPPED,
        saved=step if pilot and save else None,
    )


def _course(member: FakeMember, plan: ParallelPlan) -> tuple[float, float, int]:
    """When a member that was told its store begins to train, how long its steps take, and which is its last."""
    spec = member.target.spec
    total, first = spec.job.total_steps or STEPS, spec.saved_step or 0
    step_s = step_time_s(plan, member.kind, _profile(member.profile, member.kind, plan.microbatch_size))
    assert member.joined_s is not None
    begun = member.joined_s + member.start_s
    if member.stopped_s is None:
        return begun, step_s, total
    return begun, step_s, min(total, first + max(0, math.ceil((member.stopped_s - begun) / step_s)))


def next_news_s(member: FakeMember, now_s: float) -> float:
    """When a training member will have more to tell than progress: its first step, its end. Infinity where never."""
    plan = member.target.plan
    if member.joined_s is None or plan is None:
        return math.inf
    begun, step_s, last = _course(member, plan)
    first = member.target.spec.saved_step or 0
    moments = (begun + step_s, begun + (last - first) * step_s)
    return min((moment for moment in moments if moment > now_s), default=math.inf)


def fake_loss(step: int) -> float:
    """Falls as a loss would, for tables to show."""
    return 0.5 + 5.0 / math.sqrt(1 + step)


@lru_cache(maxsize=1024)
def step_time_s(plan: ParallelPlan, kind: str, profile: ModelProfile) -> float:
    """Seconds a step of the plan takes on fake devices, by the planner's own cost model."""
    return price(plan, LayerCosts(profile), DeviceKind(kind)).step_time_s


@lru_cache(maxsize=1024)
def _profile(profile: ModelProfile | None, kind: str, size: int) -> ModelProfile:
    """Of a member's model at a micro-batch size, on its own kind of device."""
    if profile is None:
        return fake_profile(size, kind)
    return changed(profile_at((profile,), size), device_kind=kind)


def fake_profile(size: int, kind: str, layers: int = LAYERS) -> ModelProfile:
    """Equal layers; seconds grow with the micro-batch size over a fixed part."""
    forward = FORWARD_S * (0.2 + 0.8 * size)
    named = tuple(
        LayerProfile(f"layer-{index}", forward, forward, forward, 1 << 20, 4 << 20, 4 << 20) for index in range(layers)
    )
    return ModelProfile("fake", size, kind, named)
