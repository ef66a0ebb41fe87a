"""Priority with preemption: who runs, on how many devices, with which stages and micro-batches.

One pass, in this order:

1. Pending jobs are ordered by priority (high first), time of submission, id.
2. A job without profiles is probed on one device. Until its menu is known its minimum is kept for it.
3. Each job gets its smallest size, in order. A blocked job has a reservation: one behind it may start only if it ends
   before the predicted start of the blocked one, or leaves it enough devices; where no start can be predicted, only
   while the blocked job has waited less than PATIENCE_S. So no stream of small jobs starves a big one.
4. A job whose minimum does not fit takes the devices of preemptible running jobs of strictly lower priority: the fewest
   victims, the least valuable of those; only if its minimum then fits. The devices are promised to it. Nothing is taken
   from a job that is guaranteed devices, or has been preempted as often as it may be: it could not go on with fewer.
5. What is still free goes to the jobs that start now, step by step to the one whose remaining time falls most per
   device, higher priority strictly first. A job still being probed keeps a fair share, as if it were like the others.
6. Gangs are laid on as few nodes as possible. Every pending job that does not start gets a reason.
"""

from collections import Counter
from dataclasses import dataclass, field

from policies.jct.ledger import PROBE_S, Ledger
from policies.jct.menu import MenuEntry
from policies.jct.placement import place
from policies.jct.sharing import Claim, grow
from policies.jct.terms import Term
from policies.jct.victims import Candidate, choose_victims
from policies.jct.waiting import blocked_wait, hopeless
from policies.model.cluster import ClusterSnapshot, DeviceView, JobView
from policies.model.decision import Decisions, Preempt, Start, Wait

PATIENCE_S = 300.0
"""How long jobs may pass a blocked one whose start cannot be predicted."""


@dataclass(slots=True)
class Gang:
    """A job that will start: its claim, the kind of its devices, what victims leave it, and its menu on that kind."""

    job: JobView
    kind: str
    entries: dict[int, MenuEntry]
    claim: Claim
    promised: list[DeviceView]


@dataclass(slots=True)
class Probe:
    """A job that will be measured on one free device. Placed with the gangs, in the order of their claims."""

    job: JobView
    kind: str


@dataclass(slots=True)
class Reservation:
    """A blocked job's hold on one device kind. start_in_s: predicted, or None; spare: devices it can do without."""

    job: JobView
    start_in_s: float | None
    spare: int


class PriorityPolicy:
    """See the module's recipe. `effort` is not needed: a pass is quick."""

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        return _Pass(Ledger(snapshot)).run()

    def terms(self, snapshot: ClusterSnapshot) -> dict[int, tuple[Term, ...]]:
        return {
            job.id: (
                Term("priority", float(job.priority), 0),
                Term("seconds since submission", (snapshot.now_us - job.submitted_us) / 1e6),
            )
            for job in snapshot.jobs
        }


@dataclass
class _Pass:
    ledger: Ledger
    claims: list[Gang | Probe] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    preempts: list[Preempt] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    blocked: list[tuple[JobView, str, int]] = field(default_factory=list)
    claimed: Counter[str] = field(default_factory=Counter)

    def run(self) -> Decisions:
        snapshot = self.ledger.snapshot
        self._keep_for_running_probes()
        pending = [job for job in snapshot.jobs if job.pending]
        for job in sorted(pending, key=lambda job: (-job.priority, job.submitted_us, job.id)):
            reason = hopeless(self.ledger, job)
            if reason is not None:
                self.waits.append(reason)
            elif not job.menu.profiles:
                self._probe(job)
            else:
                self._claim_minimum(job)
        self._grow()
        self._lay_out()
        self._explain()
        return Decisions(snapshot.version, tuple(self.starts), tuple(self.preempts), tuple(self.waits))

    # --- probes ---------------------------------------------------------------------------------------------

    def _keep_for_running_probes(self) -> None:
        for job in self.ledger.snapshot.jobs:
            kind = self.ledger.kind_held.get(job.id)
            if not job.pending and job.plan is None and kind is not None:
                self._keep(job, kind, held=1)

    def _keep(self, job: JobView, kind: str, held: int) -> None:
        """Keep what the job's minimum still lacks, as far as there are free devices."""
        self.ledger.keep(job, kind, max(0, min(self._room(job, kind), job.menu.min_devices - held)))

    def _probe(self, job: JobView) -> None:
        kinds = [kind.name for kind in self.ledger.kinds_of(job)]
        for kind in kinds:
            room = self._room(job, kind)
            if room >= 1 and self._may_pass(job, kind, 1, PROBE_S):
                self.claims.append(Probe(job, kind))
                self.claimed[kind] += 1
                self._keep(job, kind, held=1)
                return
        for kind in kinds:
            freed = self._preempt(job, kind, 1, PROBE_S)
            if freed:
                self._start_probe(job, freed[:1])
                self._keep(job, kind, held=1)
                return
        self._block(job, max(kinds, key=lambda kind: self.ledger.total(kind, job.avoid)), 1)

    def _start_probe(self, job: JobView, devices: list[DeviceView]) -> None:
        chosen = place(devices, 1)
        self.ledger.take(chosen)
        self.starts.append(Start(job.id, chosen, None))

    # --- minimum sizes --------------------------------------------------------------------------------------

    def _claim_minimum(self, job: JobView) -> None:
        menu = self.ledger.menu(job)
        options: list[tuple[str, dict[int, MenuEntry]]] = []
        for name in (kind.name for kind in self.ledger.kinds_of(job)):
            entries = {n: e for n, e in menu.of(name).items() if n <= self.ledger.total(name, job.avoid)}
            if entries:
                options.append((name, entries))
        options.sort(key=lambda option: (min(entry.step_time_s for entry in option[1].values()), option[0]))
        for kind, entries in options:
            smallest = min(entries)
            seconds = job.remaining_steps * entries[smallest].step_time_s + entries[smallest].startup_s
            if smallest <= self._room(job, kind) and self._may_pass(job, kind, smallest, seconds):
                self._claim(job, kind, entries, smallest, [])
                return
        for kind, entries in options:
            smallest = min(entries)
            seconds = job.remaining_steps * entries[smallest].step_time_s + entries[smallest].startup_s
            freed = self._preempt(job, kind, smallest, seconds)
            if freed:
                useful = {n: e for n, e in entries.items() if n <= max(smallest, len(freed))}
                size = min(useful, key=lambda n: (useful[n].step_time_s, n))
                self._claim(job, kind, entries, size, freed)
                return
        kind, entries = options[0]
        self._block(job, kind, min(entries))

    def _room(self, job: JobView, kind: str) -> int:
        """Free devices that are neither kept for others nor claimed in this pass."""
        return self.ledger.free_count(job, kind) - self.ledger.kept_from(job, kind) - self.claimed[kind]

    def _claim(
        self, job: JobView, kind: str, entries: dict[int, MenuEntry], size: int, promised: list[DeviceView]
    ) -> None:
        reserved = self.reservations.get(kind)
        if reserved is not None and reserved.start_in_s is not None:
            seconds = job.remaining_steps * entries[size].step_time_s + entries[size].startup_s
            if seconds > reserved.start_in_s:
                entries = {n: entry for n, entry in entries.items() if n <= size + reserved.spare}
        times = {n: entry.step_time_s for n, entry in entries.items()}
        claim = Claim(job.id, job.remaining_steps, times, size)
        self.claims.append(Gang(job, kind, entries, claim, promised))
        self.claimed[kind] += max(0, size - len(promised))

    def _may_pass(self, job: JobView, kind: str, size: int, seconds: float) -> bool:
        """Whether a job may start although another that comes first is blocked on the same kind."""
        reserved = self.reservations.get(kind)
        if reserved is None:
            return True
        if reserved.start_in_s is None:
            waited_s = (self.ledger.snapshot.now_us - reserved.job.submitted_us) / 1e6
            return waited_s < PATIENCE_S
        if seconds <= reserved.start_in_s:
            return True
        if size > reserved.spare:
            return False
        reserved.spare -= size
        return True

    def _block(self, job: JobView, kind: str, needed: int) -> None:
        """The job waits. The first blocked job of a kind gets the reservation."""
        room = max(0, self._room(job, kind))
        if kind not in self.reservations:
            start_in_s, left_over = self.ledger.free_in_s(job, kind, needed - room, self._ends(kind, optimistic=True))
            self.reservations[kind] = Reservation(job, start_in_s, min(room, left_over))
        self.blocked.append((job, kind, needed))

    def _ends(self, kind: str, *, optimistic: bool = False) -> list[tuple[float, int]]:
        """When the gangs of this pass end: (seconds, devices) of each, at its size or at its fastest."""
        return [
            (
                gang.job.remaining_steps
                * (min(gang.claim.step_time_s.values()) if optimistic else gang.claim.step_time_s[gang.claim.size]),
                gang.claim.size,
            )
            for gang in self._gangs(kind)
        ]

    def _explain(self) -> None:
        """Say of each blocked job what it lacks once all others have got theirs."""
        ahead: dict[str, int] = {}
        for job, kind, needed in self.blocked:
            ahead[kind] = ahead.get(kind, 0) + needed
            lacking = ahead[kind] - self.ledger.free_count(job, kind)
            start_in_s, _ = self.ledger.free_in_s(job, kind, lacking, self._ends(kind))
            self.waits.append(blocked_wait(self.ledger, job, kind, needed, start_in_s))

    # --- preemption -----------------------------------------------------------------------------------------

    def _preempt(self, job: JobView, kind: str, needed: int, seconds: float) -> list[DeviceView]:
        """Choose victims so that `needed` devices are there; their devices, or none where that cannot be."""
        room = max(0, self._room(job, kind))
        if room >= needed or not self._may_pass(job, kind, needed, seconds):
            return []
        candidates = [
            Candidate(other.id, devices, (other.priority, -other.submitted_us))
            for other in self.ledger.running
            if other.preemptible
            and not other.shield
            and other.priority < job.priority
            and (devices := len(self.ledger.held(other.id, job, kind)))
        ]
        chosen = choose_victims(candidates, needed - room)
        freed = [device for victim in chosen for device in self.ledger.held(victim, job, kind)]
        for victim in chosen:
            self.ledger.take_from(victim)
        self.preempts += [Preempt(victim, job.id) for victim in chosen]
        return freed

    def _gangs(self, kind: str) -> list[Gang]:
        return [claim for claim in self.claims if isinstance(claim, Gang) and claim.kind == kind]

    # --- growth and placement -------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Growth never exceeds what every claim on the kind could still do without, so that each can be placed."""
        for kind in sorted({claim.kind for claim in self.claims}):
            gangs = self._gangs(kind)
            for priority in sorted({gang.job.priority for gang in gangs}, reverse=True):
                level = [gang for gang in gangs if gang.job.priority == priority]
                room = min(self._room(claim.job, kind) for claim in self.claims if claim.kind == kind)
                free = room - self._fair_share_of_probed(level, kind, room)
                self.claimed[kind] += max(0, free) - grow([gang.claim for gang in level], max(0, free))

    def _fair_share_of_probed(self, level: list[Gang], kind: str, room: int) -> int:
        """What jobs that await their menu may expect beyond their minimum, if they are like those that start."""
        priority = level[0].job.priority
        probed = [(job, 1 + count) for job, count in self.ledger.kept_for_probed(kind, priority)]
        total = max(0, room) + sum(held for _, held in probed) + sum(gang.claim.size for gang in level)
        share = total // (len(probed) + len(level))
        return sum(max(0, min(share, job.menu.max_devices) - held) for job, held in probed)

    def _lay_out(self) -> None:
        """Place all in the order of their claims: each was promised room after those before it."""
        for gang in self.claims:
            if isinstance(gang, Probe):
                self._start_probe(gang.job, self.ledger.free(gang.job, gang.kind))
                continue
            size, own = gang.claim.size, gang.promised
            free = self.ledger.free(gang.job, gang.kind)
            extra = set(place(free, size - len(own)))
            devices = place([*own, *(device for device in free if device.id in extra)], size)
            entry = gang.entries[size]
            self.ledger.take(devices)
            self.starts.append(Start(gang.job.id, devices, entry.plan, entry.step_time_s))
