"""Virtual agents for a forked state: they take over what runs there, and give later gangs the lives they would have.

A change of shape that is under way at the fork is finished through a checkpoint, and so are all later ones: that takes
a little longer than a live one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from policies.cost import Memory
from policies.jct.menu import step_time_of
from policies.model.device import DeviceKind
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    EndCause,
    Generation,
    Job,
    Member,
    NodeState,
    Wanted,
)
from scheduler.core.events import NodeReports
from scheduler.core.settings import us
from scheduler.core.snapshot import menu_request
from scheduler.core.targets import pilot_of
from scheduler.forecast.fork import Arrival, Fork
from scheduler.forecast.futures import Chance, steps_in_all
from scheduler.protocol.fake import fake_profile
from scheduler.protocol.messages import Cause, Phase, Report
from scheduler.simulator.placing import row_of
from scheduler.simulator.world import SESSION, Gang, World

PROBE_S = 10.0
STOP_S = 2.0
COMMAND_START_S = 1.0

_LAST_WORD = {EndCause.FINISHED: Cause.FINISHED, EndCause.PROBE_DONE: Cause.PROBE_DONE}
_OPEN = (AttemptState.STARTING, AttemptState.RUNNING)


@dataclass(slots=True)
class ForkedWorld(World):
    """guessed: jobs whose work, or whole model, nobody knows."""

    arrivals: tuple[Arrival, ...] = ()
    chance: Chance = field(default_factory=lambda: Chance(0))
    guessed: set[int] = field(default_factory=set)
    _measured: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, fork: Fork, chance: Chance) -> "ForkedWorld":
        """Takes over what runs. The state is changed: nodes' sessions are the virtual agents' now, also of nodes that
        have not said Hello since the daemon's start, or are silent for a moment."""
        world = cls(
            fork.state, dict(fork.state.measured), tell_totals=False, arrivals=fork.arrivals, chance=chance
        )
        living = (node.id for node in fork.state.nodes.values() if node.state is not NodeState.LOST)
        fork.state.said_hello = dict.fromkeys(living, SESSION)
        for job in list(fork.state.jobs.values()):
            world.done[job.id] = _done(fork, job)
            world.meet(job)
            if (attempt := fork.state.open_attempt(job.id)) is not None:
                world._take_over(job, attempt, fork.now_us)
        return world

    def meet(self, job: Job, work: float | None = None) -> None:
        """A job's true work is drawn once. work: what it was drawn from, where it is one that is yet to come."""
        total, known = steps_in_all(self.state, job, self.done[job.id], self.arrivals, self.chance)
        self.total[job.id] = work if work is not None else total
        unprobed = not job.spec.is_command and not self.state.measured.get(job.spec_key)
        is_guess = not known or (unprobed and not self.state.probed(job).profiles)
        if is_guess and job.wanted is not Wanted.CANCEL:  # what is being cancelled ends at once, whatever its work
            self.guessed.add(job.id)

    # --- what runs at the fork ------------------------------------------------------------------------------

    def _take_over(self, job: Job, attempt: Attempt, now: int) -> None:
        if attempt.state in _OPEN:
            self._remember_measured(job, attempt)
            begins = now
            if attempt.state is AttemptState.STARTING:
                since = attempt.starting_us or attempt.created_us
                begins = max(now + us(0.5), since + us(self._pace(job, attempt)[0]))
            self._begin(job, attempt, begins, self._pace(job, attempt)[1])
        elif attempt.state is AttemptState.STOPPING:
            gang = self._gang(job, attempt, now, 1.0)
            self.gangs[attempt.job, attempt.number] = gang
            self._push(now + us(min(attempt.stop_grace_s or 0.0, STOP_S)), (attempt.job, attempt.number), "gone")

    def changes_to_drop(self) -> list[NodeReports]:
        """The pilots' words that end live changes which are under way: the core then finishes them in its other way."""
        words = []
        for gang in self.gangs.values():
            key = (gang.attempt.job, gang.attempt.number)
            proposed = self.state.proposed(*key)
            if proposed is not None and gang.attempt.state is AttemptState.RUNNING:
                pilot = gang.members[gang.pilot]
                self._seq += 1
                report = Report(
                    job=pilot.job, attempt=pilot.attempt, member=pilot.number, seq=self._seq, phase=Phase.TRAINING,
                    step=int(gang.done), dropped=proposed.number,
                )  # fmt: skip
                words.append(self._reports(pilot.node, [report]))
        return words

    def _remember_measured(self, job: Job, attempt: Attempt) -> None:
        """How many times as long the job's steps take as was predicted."""
        progress, generation = self.state.progress.get(job.id), self.state.generation_of(job.id, attempt.number)
        if progress is None or progress.step_time_s is None or generation is None or generation.plan is None:
            return
        if not self.menus.get(job.spec_key) and attempt.kind is AttemptKind.TRAIN:
            predicted = self._predicted_s(job, generation, self._members(attempt))
            self._measured[job.id] = progress.step_time_s / predicted

    # --- lives ----------------------------------------------------------------------------------------------

    def _start(self, attempt: Attempt, now: int) -> None:
        job = self.state.jobs[attempt.job]
        start_s, step_time_s = self._pace(job, attempt)
        self._begin(job, attempt, now + us(start_s), step_time_s)

    def _begin(self, job: Job, attempt: Attempt, begins_us: int, step_time_s: float) -> None:
        key = (attempt.job, attempt.number)
        gang = self.gangs[key] = self._gang(job, attempt, begins_us, step_time_s)
        if attempt.kind is AttemptKind.PROBE:
            self._push(begins_us, key, "end")
            return
        first = begins_us if attempt.kind is AttemptKind.COMMAND else begins_us + us(step_time_s) + 1
        self._push(min(first, gang.ends_us), key, "progress")
        self._push(gang.ends_us, key, "end")

    def _gang(self, job: Job, attempt: Attempt, begins_us: int, step_time_s: float) -> Gang:
        generation = self.state.generation_of(attempt.job, attempt.number)
        assert generation is not None
        done = self.done[job.id]
        total = max(self.total[job.id], done + 1.0)
        members = self.state.members_of(attempt.job, attempt.number)
        return Gang(attempt, members, pilot_of(attempt, generation), begins_us, step_time_s, done, total)

    def _pace(self, job: Job, attempt: Attempt) -> tuple[float, float]:
        """Seconds of start-up, and of a step; a step of a command is a second."""
        start = self.chance.factor(job.id, "start", self.chance.spread.start)
        if attempt.kind is AttemptKind.PROBE:
            return PROBE_S * start, 1.0
        if attempt.kind is AttemptKind.COMMAND:
            return COMMAND_START_S * start, 1.0
        generation, members = self.state.generation_of(job.id, attempt.number), self._members(attempt)
        assert generation is not None
        assert generation.plan is not None
        measured = job.id in self._measured
        spread = self.chance.spread.measured_step if measured else self.chance.spread.step
        slow = self.chance.factor(job.id, "step", spread)
        if (menu := self.menus.get(job.spec_key)) is not None:
            kind = self.state.devices[members[0].device].kind
            row = row_of(menu, generation.plan, kind, [member.node for member in members])
            return row.restart_s, row.step_time_s * slow
        device = DeviceKind(self.state.devices[members[0].device].kind)
        profiles = menu_request(self.state, job).profiles
        parameters = sum(layer.parameter_bytes for layer in profiles[0].layers) if profiles else 0
        load_s = parameters * Memory(generation.plan.precision).state_per_parameter_byte
        load_s /= device.state_bandwidth_bytes_per_s
        predicted = self._predicted_s(job, generation, members)
        return (device.start_s + load_s) * start, predicted * self._measured.get(job.id, 1.0) * slow

    def _predicted_s(self, job: Job, generation: Generation, members: list[Member]) -> float:
        kind = DeviceKind(self.state.devices[members[0].device].kind)
        assert generation.plan is not None
        try:
            return step_time_of(menu_request(self.state, job), generation.plan, kind)
        except ValueError:  # the plan is of a model that was measured under another key
            return 1.0

    def _members(self, attempt: Attempt) -> list[Member]:
        return self.state.present_members(attempt.job, attempt.number)

    def note_progress(self, now: int) -> None:
        """What running gangs have done by now, as their pilots would have told it."""
        for (job, number), gang in self.gangs.items():
            progress = self.state.progress.get(job)
            runs = self.state.attempts[job, number].state is AttemptState.RUNNING
            if progress is not None and runs and gang.attempt.kind is AttemptKind.TRAIN and gang.begins_us < now:
                progress.step = max(int(gang.at(now)), int(gang.done) + 1)

    # --- words ----------------------------------------------------------------------------------------------

    def _say(self, gang: Gang, what: str, now: int) -> Iterator[NodeReports]:
        if what == "end" and gang.attempt.kind is AttemptKind.PROBE:
            del self.gangs[gang.attempt.job, gang.attempt.number]
            yield self._probed(gang)
        elif what == "gone":
            del self.gangs[gang.attempt.job, gang.attempt.number]
            cause = _LAST_WORD.get(gang.attempt.cause or EndCause.FAILED, Cause.STOPPED)
            yield from self._gone(gang, cause, gang.done)
        else:
            yield from World._say(self, gang, what, now)

    def _probed(self, gang: Gang) -> NodeReports:
        """Nobody knows yet what it will measure: another model of this cluster stands in, or one that is made up."""
        [member] = gang.members
        job = self.state.jobs[gang.attempt.job]
        kind = self.state.devices[member.device].kind
        known = next((record.profiles for record in self.state.profiles.values()), None)
        profiles = known or tuple(fake_profile(size, kind) for size in (1, 2, 4, 8))
        batch = job.global_batch or max(profile.microbatch_size for profile in profiles)
        report = self._report(gang, member, Phase.GONE, cause=Cause.PROBE_DONE)
        full = msgspec.structs.replace(
            report, profiles=profiles, global_batch=batch, fingerprint="imagined",
            total_steps=job.total_steps or round(gang.total),
        )  # fmt: skip
        return self._reports(member.node, [full])

    def _progress(self, gang: Gang, now: int) -> Iterator[NodeReports]:
        """A command runs once all its members say so."""
        if gang.attempt.kind is not AttemptKind.COMMAND:
            yield from World._progress(self, gang, now)
        else:
            for member in gang.members:
                yield self._reports(member.node, [self._report(gang, member, Phase.TRAINING)])

    def _stop(self, gang: Gang, now: int) -> list[NodeReports]:
        """Without checkpoints everything since the last one is lost, and a command begins anew."""
        if gang.attempt.kind is AttemptKind.PROBE:
            return list(self._gone(gang, Cause.KILLED, 0.0))
        job = self.state.jobs[gang.attempt.job]
        resized = self.state.attempts[job.id, gang.attempt.number].cause is EndCause.RESIZED  # live, most likely
        if resized or job.spec.checkpoint is not None:
            return World._stop(self, gang, now)
        self.done[job.id] = float(job.saved_step or 0)
        return list(self._gone(gang, Cause.STOPPED, self.done[job.id]))


def _done(fork: Fork, job: Job) -> float:
    """Steps done at the fork; of a command seconds."""
    state, attempt = fork.state, fork.state.open_attempt(job.id)
    if job.spec.is_command:
        began = attempt.running_us if attempt is not None else None
        return max(0.0, (fork.now_us - began) / 1e6) if began is not None else 0.0
    progress = state.progress.get(job.id)
    if attempt is not None and progress is not None and progress.step is not None:
        return float(progress.step)
    return float(job.saved_step or 0)
