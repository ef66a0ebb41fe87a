"""Real gangs: a shim process for each attempt, found again after an agent's restart, swept when it ends."""

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from msgspec.structs import replace

from agent import cgroups
from agent.accounts import Account, Accounts
from agent.cgroups import Containment
from agent.folders import Attempt, Folders
from agent.gangs import OnReport, refusal
from agent.identity import boot_id, open_process
from agent.shim_link import ShimLink
from scheduler.protocol.messages import Cause, Phase, Report, ShimHello, Slowdowns, Stop, Target
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.spec import AttemptSpec

KILL_AFTER_GRACE_S = 5.0
STUCK_AFTER_S = 5.0
SWEEP_EVERY_S = 0.1

log = structlog.get_logger()


@dataclass(slots=True)
class Gang:
    """One attempt's processes on this node. process: a pidfd of the shim, or -1 before it runs. stops: when the members
    that shall stop are late, on the loop's clock. devices: of its members, as their newest Targets name them. adopted:
    members that an earlier agent has begun to start."""

    attempt: Attempt
    spec: AttemptSpec
    link: ShimLink
    box: Containment
    process: int = -1
    child: subprocess.Popen[bytes] | None = None
    reports: dict[int, Report] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    deadline: asyncio.TimerHandle | None = None
    stops: dict[int, float] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    adopted: frozenset[int] = frozenset()


class Shims:
    """Starts, re-adopts and buries shims."""

    def __init__(self, folders: Folders, host: str, accounts: Accounts | None = None) -> None:
        self._folders = folders
        self._host = host
        self._accounts = accounts or Accounts({}, {}, as_itself=True)
        self._parent = cgroups.find_parent()
        self._gangs: dict[Attempt, Gang] = {}
        self._burials: set[asyncio.Task[None]] = set()
        self._on_report: OnReport = lambda report: None

    # --- what the node asks ---------------------------------------------------------------------------------

    def adopt(self, on_report: OnReport) -> list[Report]:
        """Reports of ended members now; those of living ones follow when their shims have answered."""
        self._on_report = on_report
        if ended := cgroups.end_unrecorded(self._folders.root):
            log.warning("ended processes whose attempt folders are gone", pids=ended)
        known: list[Report] = []
        for attempt in self._folders.unfinished(fake=False):
            spec = self._folders.spec(attempt)
            if spec is None:
                continue
            gang = self._new_gang(attempt, spec)
            if not self._folders.members(attempt):  # the agent died while starting it: nothing was forked yet
                gang.box.kill()
                del self._gangs[attempt]
                continue
            for member in self._folders.members(attempt):
                last = self._folders.last_word(attempt, member)
                gang.reports[member] = last or _first_report(attempt, member)
            gang.adopted = frozenset(gang.reports)
            record = self._folders.shim(attempt)
            if record is not None and record.boot == boot_id() and record.nonce == spec.nonce:
                gang.process = self._find(record.pid, record.start_ticks)
            known += gang.reports.values()
            if any(report.phase is not Phase.GONE for report in gang.reports.values()):
                log.info("adopting", attempt=attempt, alive=gang.process >= 0)
                gang.task = asyncio.create_task(self._guard(gang))
        return known

    def spawn(self, target: Target, secrets: dict[str, str]) -> None:
        attempt = (target.job, target.attempt)
        try:
            gang = self._gangs.get(attempt) or self._start(attempt, target.spec)
            log_file = self._folders.open_log(attempt, target.member)
        except OSError as error:
            self._report(refusal(target, f"cannot start: {error}"))
            return
        gang.reports[target.member] = _first_report(attempt, target.member)
        gang.devices[target.member] = target.device
        gang.link.spawn(target, log_file, secrets)

    def deliver(self, target: Target) -> None:
        gang = self._gangs.get((target.job, target.attempt))
        if gang is None:
            return
        gang.devices[target.member] = target.device
        if isinstance(target.want, Stop):
            self._arm(gang, target.member, target.want.grace_s)
            if target.want.grace_s == 0 and not gang.link.greeted and self._all_stop(gang):
                gang.link.drop_unsent()  # nothing was forked yet: end the shim itself
                gang.box.kill()
                return
        gang.link.deliver(target)

    def tell(self, slowdowns: Iterable[Slowdown]) -> None:
        known = {one.device: one for one in slowdowns}
        for gang in self._gangs.values():
            own = [known[device] for device in dict.fromkeys(gang.devices.values()) if device in known]
            gang.link.tell(Slowdowns(slowdowns=tuple(own)))

    def forget(self, key: tuple[int, int, int]) -> None:
        gang = self._gangs.get(key[:2])
        if gang is None:
            self._folders.done(key[:2])
            return
        gang.reports.pop(key[2], None)
        if not gang.reports:
            del self._gangs[gang.attempt]
            if gang.task is not None and not gang.task.done():  # it still collects the shim
                self._burials.add(gang.task)
                gang.task.add_done_callback(self._burials.discard)
            self._folders.done(gang.attempt)

    async def close(self) -> None:
        tasks = [*self._burials, *(gang.task for gang in self._gangs.values() if gang.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- one gang's life ------------------------------------------------------------------------------------

    def _new_gang(self, attempt: Attempt, spec: AttemptSpec) -> Gang:
        box = Containment(self._parent, f"{attempt[0]}.{attempt[1]}-{spec.nonce[:8]}", spec.nonce)
        link = ShimLink(self._folders.path(attempt), spec.nonce, self._hear, self._report)
        gang = Gang(attempt, spec, link, box)
        self._gangs[attempt] = gang
        return gang

    def _hear(self, hello: ShimHello) -> None:
        """Members whose start an earlier agent had begun, and whose shim never heard of it: it never will."""
        gang = self._gangs.get((hello.job, hello.attempt))
        if gang is None:
            return
        lost = gang.adopted - set(hello.members)
        for member in sorted(lost & gang.reports.keys()):
            if gang.reports[member].phase is not Phase.GONE:
                self._report(_lost_report(gang, member, "its agent was ended before it had started it"))
        if lost and not hello.members:
            gang.box.kill()

    def _start(self, attempt: Attempt, spec: AttemptSpec) -> Gang:
        """Folder and spec first, then the cgroup, then the process (LIFECYCLE 29)."""
        account = self._accounts.of(spec.user, spec.job.team)
        owner = (account.uid, account.gid) if account is not None else None
        folder = self._folders.make(attempt, spec, owner)
        gang = self._new_gang(attempt, spec)
        try:
            self._launch(folder, gang, account)
        except OSError:
            del self._gangs[attempt]
            raise
        gang.task = asyncio.create_task(self._guard(gang))
        return gang

    def _launch(self, folder: Path, gang: Gang, account: Account | None) -> None:
        command = [sys.executable, "-P", "-m", "worker.shim", "--folder", str(folder), "--host", self._host]
        command += ["--account", account.option] if account is not None else []
        with (folder / "shim.log").open("ab") as output:
            gang.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                cwd=folder, env=_environment(gang.spec.nonce, folder, account),
            )
        gang.box.add(gang.child.pid)
        gang.process = os.pidfd_open(gang.child.pid)

    def _find(self, pid: int, ticks: int) -> int:
        descriptor = open_process(pid, ticks)
        return -1 if descriptor is None else descriptor

    async def _guard(self, gang: Gang) -> None:
        """Follow the shim to its end, then make sure that nothing of the attempt is left, and say so."""
        try:
            while _alive(gang.process):
                await gang.link.run(lambda: _alive(gang.process))
                if all(report.phase is Phase.GONE for report in gang.reports.values()):
                    break
                await asyncio.sleep(SWEEP_EVERY_S)
            await self._bury(gang)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("guard failed", attempt=gang.attempt)
            gang.box.kill()
            await self._bury(gang)
        finally:
            if gang.deadline is not None:
                gang.deadline.cancel()

    async def _bury(self, gang: Gang) -> None:
        """The shim has hung up. Its durable last words count; members without one are swept and reported lost."""
        lost = [member for member, report in gang.reports.items() if report.phase is not Phase.GONE]
        for member in list(lost):
            if (last := self._folders.last_word(gang.attempt, member)) is not None:
                lost.remove(member)
                self._report(last)
        while lost and gang.box.pids():
            gang.box.kill()
            await asyncio.sleep(SWEEP_EVERY_S)
        for member in lost:
            self._report(_lost_report(gang, member))
        await self._reap(gang)
        gang.box.remove()

    async def _reap(self, gang: Gang) -> None:
        """The shim lingers until it sees that its last reports were read; collect it where it is our child."""
        if gang.process < 0:
            return
        while _alive(gang.process):
            await asyncio.sleep(SWEEP_EVERY_S)
        if gang.child is not None:
            gang.child.wait()
        os.close(gang.process)
        gang.process = -1

    def _report(self, report: Report) -> None:
        gang = self._gangs.get((report.job, report.attempt))
        if gang is not None:
            gang.reports[report.member] = report
            if all(known.phase is Phase.GONE for known in gang.reports.values()):
                gang.link.hang_up()
        self._on_report(report)

    def _arm(self, gang: Gang, member: int, grace_s: float) -> None:
        """The shim runs the grace. Should it fail to, everything is killed a little later, once nobody shall go on."""
        loop = asyncio.get_running_loop()
        due = loop.time() + grace_s + KILL_AFTER_GRACE_S
        gang.stops[member] = min(due, gang.stops.get(member, due))
        if self._all_stop(gang):
            if gang.deadline is not None:
                gang.deadline.cancel()
            gang.deadline = loop.call_at(max(gang.stops.values()), self._kill, gang)

    def _kill(self, gang: Gang) -> None:
        gang.box.kill()
        gang.deadline = asyncio.get_running_loop().call_later(STUCK_AFTER_S, self._look_for_stuck, gang)

    def _look_for_stuck(self, gang: Gang) -> None:
        """What SIGKILL does not end waits inside the kernel, with the device in its hands."""
        pids = gang.box.pids()
        for report in list(gang.reports.values()) if pids else ():
            if report.phase is not Phase.GONE:
                told = f"processes {', '.join(map(str, pids))} do not end by SIGKILL"
                self._report(replace(report, seq=report.seq + 1, phase=Phase.STUCK, message=told))

    def _all_stop(self, gang: Gang) -> bool:
        return all(report.phase is Phase.GONE or member in gang.stops for member, report in gang.reports.items())


def _alive(process: int) -> bool:
    """Whether the process behind a pidfd has not ended: a pidfd turns readable at the end, zombie or not."""
    if process < 0:
        return False
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return not poll.poll(0)


def _environment(nonce: str, folder: Path, account: Account | None) -> dict[str, str]:
    """From nothing: only what a program needs to run here."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "TMPDIR", "TZ", "LD_LIBRARY_PATH")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    if account is not None:
        variables |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    return variables | {"JCT_NONCE": nonce, "JCT_ATTEMPT_DIR": str(folder)}


def _first_report(attempt: Attempt, member: int) -> Report:
    return Report(job=attempt[0], attempt=attempt[1], member=member, seq=0, phase=Phase.SPAWNING)


def _lost_report(gang: Gang, member: int, why: str = "its shim ended without a last word") -> Report:
    last = gang.reports[member]
    return Report(
        job=gang.attempt[0], attempt=gang.attempt[1], member=member, seq=last.seq + 1, phase=Phase.GONE,
        cause=last.cause or Cause.SHIM_LOST, exit_code=last.exit_code, signal=last.signal, step=last.step,
        saved=last.saved, message=last.message if last.cause is not None and last.message else why,
    )
