"""A simulated agent: real messages and the real `reconcile`, fake members, somebody else's clock."""

from dataclasses import dataclass, field

from scheduler.protocol.fake import FakeMember, report_at
from scheduler.protocol.messages import Cause, DeviceInfo, Hello, Phase, Report, Target, Targets
from scheduler.protocol.reconcile import Deliver, Forget, Key, NeverStarted, SpawnMember, reconcile


@dataclass(slots=True)
class SimulatedAgent:
    """One node. Its members live on across restarts of the agent, as shims do."""

    node: str
    devices: tuple[DeviceInfo, ...]
    session: str = "s0"
    boot: str = "b0"
    members: dict[Key, FakeMember] = field(default_factory=dict)
    ended: dict[Key, Report] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    delivered: dict[Key, Target] = field(default_factory=dict)
    version: tuple[int, int] = (0, 0)

    def hello(self, now_s: float) -> Hello:
        return Hello(
            node=self.node, machine=f"machine-{self.node}", boot=self.boot, session=self.session,
            address="127.0.0.1", devices=self.devices, reports=self.reports(now_s),
        )

    def reports(self, now_s: float) -> tuple[Report, ...]:
        """All members as they are now; ends are final."""
        for key, member in list(self.members.items()):
            report = report_at(member, now_s)
            if report.phase is Phase.GONE:
                self.ended[key] = report
                del self.members[key]
        return (*self.ended.values(), *(report_at(member, now_s) for member in self.members.values()))

    def take(self, targets: Targets, now_s: float) -> None:
        """Newest Targets win; repeated and late ones change nothing."""
        if (targets.epoch, targets.version) < self.version or targets.session != self.session:
            return
        self.version = (targets.epoch, targets.version)
        self.targets = targets.targets
        known = {report.key: report for report in self.reports(now_s)}
        for action in reconcile(self.targets, known, self.delivered):
            self._act(action, now_s)

    def _act(self, action: SpawnMember | Deliver | NeverStarted | Forget, now_s: float) -> None:
        match action:
            case SpawnMember(target):
                kind = next(device.kind for device in self.devices if device.id == target.device)
                born = FakeMember(target=target, kind=kind, spawned_s=now_s)
                self.members[target.key] = born.told(target, now_s)
                self.delivered[target.key] = target
            case Deliver(target):
                self.members[target.key] = self.members[target.key].told(target, now_s)
                self.delivered[target.key] = target
            case NeverStarted(target):
                self.ended[target.key] = Report(
                    job=target.job, attempt=target.attempt, member=target.member, seq=1, phase=Phase.GONE,
                    cause=Cause.KILLED, message="stopped before it was started",
                )
            case Forget(key):
                del self.ended[key]
                self.delivered.pop(key, None)

    def kill_member(self, key: Key, now_s: float) -> None:
        """SIGKILL from outside."""
        member = self.members.pop(key)
        self.ended[key] = Report(
            job=key[0], attempt=key[1], member=key[2], seq=2 + int((now_s - member.spawned_s) * 1000),
            phase=Phase.GONE, signal=9, cause=Cause.SIGNAL, message="killed",
        )

    def restart(self) -> None:
        """The agent's process ends and starts: a new session, the same members."""
        self.session = f"s{int(self.session[1:]) + 1}"
        self.version, self.targets, self.delivered = (0, 0), (), {}

    def reboot(self) -> None:
        """The machine starts anew: everything on it is gone without a word."""
        self.restart()
        self.boot = f"b{int(self.boot[1:]) + 1}"
        self.members.clear()
        self.ended.clear()
