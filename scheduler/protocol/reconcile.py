"""Compare what shall be with what is: pure, so that agent and simulator act alike.

Absence never kills: a live member without a Target is left alone and shown. Only `Stop` ends one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.protocol.messages import Phase, Report, Run, Target

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SpawnMember:
    """Start a member that has never been here."""

    target: Target


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand a changed Target to a member that is here."""

    target: Target


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """Report GONE for a member that shall stop and was never here."""

    target: Target


@dataclass(frozen=True, slots=True)
class Forget:
    """The member is gone and its end is in the database."""

    key: Key


Step = SpawnMember | Deliver | NeverStarted | Forget


def reconcile(
    targets: Iterable[Target], reports: Mapping[Key, Report], delivered: Mapping[Key, Target]
) -> tuple[Step, ...]:
    """What to do so that the members become what their Targets say.

    targets: all of the newest Targets. reports: the newest of each member known here. delivered: the Target each
    member got last. Doing the steps and asking again with their results gives nothing more to do.
    """
    steps: list[Step] = []
    wanted: dict[Key, Target] = {target.key: target for target in targets}
    for key, target in wanted.items():
        report = reports.get(key)
        if report is None:
            steps.append(SpawnMember(target) if isinstance(target.want, Run) else NeverStarted(target))
        elif report.phase is not Phase.GONE and delivered.get(key) != target:
            steps.append(Deliver(target))
    for key, report in reports.items():
        if key not in wanted and report.phase is Phase.GONE:
            steps.append(Forget(key))
    return tuple(steps)
