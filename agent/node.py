"""The node's mind: newest Targets in, steps of `reconcile` out, Reports of all members up. No sockets here."""

from collections.abc import Callable, Iterable

import structlog
from msgspec.structs import replace

from agent.gangs import Gangs, refusal
from scheduler.protocol.messages import (
    Cause,
    DeviceInfo,
    Health,
    Hello,
    NeedSecrets,
    Phase,
    Report,
    Reports,
    Secrets,
    Stop,
    Target,
    Targets,
)
from scheduler.protocol.reconcile import Deliver, Forget, Key, NeverStarted, SpawnMember, reconcile
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.telemetry import DeviceSample, Telemetry

log = structlog.get_logger()

Attempt = tuple[int, int]
_NOT_THERE = (Phase.SPAWNING, Phase.EXITED, Phase.GONE)


class NodeMind:
    """Keeps what shall be and what is. `changed` is called whenever there is something new to send up.

    telemetry: the newest sample; None before the first.
    """

    def __init__(self, identity: Hello, gangs: Gangs, changed: Callable[[], None]) -> None:
        self._identity = identity
        self._offered = frozenset(device.id for device in identity.devices)
        self._gangs = gangs
        self._changed = changed
        self._targets: tuple[Target, ...] = ()
        self._delivered: dict[Key, Target] = {}
        self._reports: dict[Key, Report] = {}
        self._version = (0, 0)
        self._seq = 0
        self._unspawned: dict[Attempt, list[Target]] = {}
        self._checked: Health | None = None
        self._sensed = Health()
        self.telemetry: Telemetry | None = None
        for report in gangs.adopt(self._take_report):
            self._reports[report.key] = report

    @property
    def applied(self) -> int:
        return self._version[1]

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        return self._identity.devices

    def hello(self) -> Hello:
        """Identity and everything known, for the beginning of a connection."""
        bad = self.health.devices if self.health is not None else {}
        devices = tuple(
            replace(device, healthy=False, reason=bad[device.id]) if bad.get(device.id) else device
            for device in self._identity.devices
        )
        return replace(self._identity, devices=devices, reports=tuple(self._reports.values()))

    @property
    def health(self) -> Health | None:
        """What the node's checks and its devices have last said; None before the first check."""
        if self._checked is None:
            return None
        reasons = filter(None, (self._checked.node, self._sensed.node))
        return Health(node="; ".join(reasons), devices=self._checked.devices | self._sensed.devices)

    def take_health(self, health: Health) -> None:
        """From the node's checks; goes up with the next beat."""
        self._checked = health

    def take_sample(self, telemetry: Telemetry, health: Health) -> None:
        """What the devices measure and how they are; goes up with the next beat."""
        self.telemetry, self._sensed = telemetry, health

    def offer(self, devices: tuple[DeviceInfo, ...]) -> None:
        """From the next Hello on."""
        self._identity = replace(self._identity, devices=devices)
        self._offered = frozenset(device.id for device in devices)

    def is_held(self, device: str) -> bool:
        """Whether a member shall be on it."""
        return any(target.device == device for target in self._targets)

    def members(self) -> list[tuple[Target, Report]]:
        """Those that have begun and not ended, and what they last said."""
        both = ((target, self._reports.get(target.key)) for target in self._targets)
        return [(target, report) for target, report in both if report is not None and report.phase not in _NOT_THERE]

    def training_on_cores(self) -> dict[str, tuple[Attempt, DeviceSample]]:
        """Of each CPU device with a member that trains, its gang and its newest sample."""
        samples = {sample.id: sample for sample in self.telemetry.devices} if self.telemetry is not None else {}
        return {
            target.device: ((target.job, target.attempt), sample)
            for target, report in self.members()
            if report.phase is Phase.TRAINING
            and (sample := samples.get(target.device)) is not None
            and sample.kind == "cpu"
        }

    def tell(self, slowdowns: Iterable[Slowdown]) -> None:
        """Its gangs, each of its own devices."""
        self._gangs.tell(slowdowns)

    def reports(self) -> Reports:
        self._seq += 1
        return Reports(
            session=self._identity.session, seq=self._seq, applied=self.applied,
            reports=tuple(self._reports.values()),
        )

    def welcome(self, epoch: int) -> None:
        """A daemon's Targets start from version 0 in each of its epochs."""
        if epoch > self._version[0]:
            self._version = (epoch, 0)

    def take_targets(self, targets: Targets) -> None:
        """Older ones and those of an older daemon change nothing."""
        if (targets.epoch, targets.version) < self._version or targets.session != self._identity.session:
            return
        self._version = (targets.epoch, targets.version)
        self._targets = targets.targets
        self._act()
        self._changed()

    def _act(self) -> None:
        for step in reconcile(self._targets, self._reports, self._delivered):
            match step:
                case SpawnMember(target) if target.device not in self._offered:
                    why = f"device {target.device} is no longer offered by node {self._identity.node}"
                    self._reports[target.key] = refusal(target, why)
                case SpawnMember(target):
                    log.info("spawn", job=target.job, attempt=target.attempt, member=target.member)
                    self._reports[target.key] = _report(target, Phase.SPAWNING)
                    self._delivered[target.key] = target
                    self._spawn(target)
                case Deliver(target) if isinstance(target.want, Stop) and self._never_spawn(target.key):
                    self._reports[target.key] = _report(target, Phase.GONE)
                case Deliver(target):
                    self._delivered[target.key] = target
                    self._gangs.deliver(target)
                case NeverStarted(target):
                    self._reports[target.key] = _report(target, Phase.GONE)
                case Forget(key):
                    del self._reports[key]
                    self._delivered.pop(key, None)
                    self._gangs.forget(key)

    def _spawn(self, target: Target) -> None:
        """At once, or when the secrets that its job names have come."""
        if target.spec.job.env_from:
            self._unspawned.setdefault(target.key[:2], []).append(target)
        else:
            self._gangs.spawn(target, {})

    def questions(self) -> list[NeedSecrets]:
        """What the daemon is to be asked, again with every report until it answers."""
        session = self._identity.session
        return [NeedSecrets(session=session, job=job, attempt=attempt) for job, attempt in self._unspawned]

    def take_secrets(self, secrets: Secrets) -> None:
        for target in self._unspawned.pop((secrets.job, secrets.attempt), ()):
            if secrets.missing:
                self._reports[target.key] = refusal(target, secrets.missing)
                self._changed()
            else:
                self._gangs.spawn(target, secrets.values)

    def _never_spawn(self, key: Key) -> bool:
        """Whether a member still waited for its secrets; now it does not any more."""
        waiting = self._unspawned.get(key[:2], [])
        found = [target for target in waiting if target.key == key]
        for target in found:
            waiting.remove(target)
        if not waiting:
            self._unspawned.pop(key[:2], None)
        return bool(found)

    def _take_report(self, report: Report) -> None:
        known = self._reports.get(report.key)
        if known is None or known.phase is Phase.GONE:
            return
        self._reports[report.key] = report
        self._changed()


def _report(target: Target, phase: Phase) -> Report:
    gone = phase is Phase.GONE
    return Report(
        job=target.job, attempt=target.attempt, member=target.member, seq=1 if gone else 0, phase=phase,
        generation=target.generation, cause=Cause.KILLED if gone else None,
        message="stopped before it was started" if gone else "",
    )
