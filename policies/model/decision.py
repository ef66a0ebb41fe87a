"""What a policy answers: starts, preemptions, and a true reason for every job that waits."""

from dataclasses import dataclass

from policies.ir.plan import ParallelPlan


@dataclass(frozen=True, slots=True)
class Start:
    """Start a job on these devices, member k on devices[k], rank k = member k in the first generation.

    plan is None for a probe, which takes exactly one device. Devices may be free, or held by a job that the same
    answer preempts: then they are promised.
    """

    job: int
    devices: tuple[str, ...]
    plan: ParallelPlan | None
    step_time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """Checkpoint and stop a running job to make room for another."""

    job: int
    for_job: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Checkpoint and stop a running job and start it again on these devices with this plan.

    Devices may be its own, free, or held by jobs that the same answer preempts or resizes: they are promised to it. It
    counts neither as a preemption nor as a failure.
    """

    job: int
    devices: tuple[str, ...]
    plan: ParallelPlan
    step_time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits: one code of the published list, one sentence, and an estimate of the start if there is one."""

    job: int
    code: str
    text: str
    start_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decisions:
    """The answer to one snapshot. Jobs not named keep what they have. A preemption or a resize of one job may make
    room for several others.

    again_in_s: when the policy wants to be asked again, though nothing may have happened by then."""

    version: int
    starts: tuple[Start, ...] = ()
    preempts: tuple[Preempt, ...] = ()
    waits: tuple[Wait, ...] = ()
    resizes: tuple[Resize, ...] = ()
    again_in_s: float | None = None
