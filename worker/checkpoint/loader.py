"""Which checkpoint to resume from: the pilot proposes, every member verifies its own layers and votes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.protocol.messages import Cause
from worker.checkpoint import catalogue
from worker.checkpoint.manifest import BrokenCheckpoint, Manifest, NewerCheckpoint
from worker.checkpoint.store import Store
from worker.checkpoint.verify import read_layers, read_manifest
from worker.errors import Ended
from worker.layer import Layer
from worker.rendezvous import Rendezvous


@dataclass(frozen=True)
class Loaded:
    """step: finished steps to go on from, 0 for a fresh start. lost: what was passed over, in words, "" if nothing."""

    step: int = 0
    manifest: Manifest | None = None
    lost: str = ""


@dataclass
class Loader:
    """Runs the vote in one member. size: ranks. accept: raises Ended when a manifest is of another job or model."""

    store: Store
    layers: Sequence[Layer]
    meet: Rendezvous
    rank: int
    size: int
    timeout_s: float
    accept: Callable[[Manifest], None]
    _states: list[tuple[Layer, Any]] = field(default_factory=list)

    def follow(self) -> Loaded:
        """Every member but the pilot: answer proposals until one is accepted by all.

        Raises:
            Ended: what the pilot decided to end with.
        """
        round_ = 0
        while True:
            proposal = self.meet.get(f"load/{round_}", self.timeout_s)
            if "cause" in proposal:
                raise Ended(Cause(proposal["cause"]), proposal["message"])
            if proposal["step"] is None:
                return Loaded()
            self._vote(round_, proposal["step"])
            if self.meet.get(f"load/{round_}/decision", self.timeout_s):
                return self._take(proposal["step"], "")
            round_ += 1

    def lead(self, candidates: list[int]) -> Loaded:
        """The pilot: propose the newest first, fall back to the next older on one bad vote.

        candidates: steps, newest first.

        Raises:
            Ended: CHECKPOINT_BROKEN when none of several is good, or one is of a newer version; never silently from 0.
        """
        bad: list[str] = []
        round_ = 0
        for step in candidates:
            try:
                self.accept(read_manifest(self.store, step))
            except NewerCheckpoint as error:
                self._end(round_, Ended(Cause.CHECKPOINT_BROKEN, f"checkpoint of step {step}: {error}"))
            except Ended as error:
                self._end(round_, error)
            except BrokenCheckpoint as error:
                bad.append(f"step {step}: {error}")
                continue
            self.meet.set(f"load/{round_}", {"step": step})
            self._vote(round_, step)
            votes = self.meet.gather([f"load/{round_}/vote/{rank}" for rank in range(self.size)], self.timeout_s)
            reasons = [vote for vote in votes if vote]
            self.meet.set(f"load/{round_}/decision", not reasons)
            if not reasons:
                lost = f"resumed from step {step}, {candidates[0] - step} steps lost: {'; '.join(bad)}" if bad else ""
                return self._take(step, lost)
            bad.append(f"step {step}: {reasons[0]}")
            round_ += 1
        if bad:
            message = (
                f"no checkpoint in {self.store.place} is good ({'; '.join(bad)}); repair one, or start again with "
                "another checkpoint directory"
            )
            self._end(round_, Ended(Cause.CHECKPOINT_BROKEN, message))
        self.meet.set(f"load/{round_}", {"step": None})
        return Loaded()

    def _vote(self, round_: int, step: int) -> None:
        self._states = []
        reason = ""
        try:
            entries = {entry.name: entry for entry in read_manifest(self.store, step).layers}
            states = read_layers(self.store, [entries[layer.name] for layer in self.layers])
            self._states = list(zip(self.layers, states, strict=True))
        except (BrokenCheckpoint, NewerCheckpoint) as error:
            reason = str(error)
        except KeyError as error:
            reason = f"layer {error} is not in it"
        self.meet.set(f"load/{round_}/vote/{self.rank}", reason)

    def _take(self, step: int, lost: str) -> Loaded:
        for layer, (tensors, values) in self._states:
            layer.load(tensors, values)
        self._states = []
        return Loaded(step, read_manifest(self.store, step), lost)

    def _end(self, round_: int, end: Ended) -> None:
        self.meet.set(f"load/{round_}", {"cause": end.cause, "message": end.message})
        raise end


def candidates(store: Store, resume: str, job: int) -> list[int]:
    """Steps to try, newest first. resume: "latest"; "none" (only this job's own); or one step's number.

    Raises:
        Ended: BAD_SPEC for anything else, or a step that is not there.
    """
    everything = catalogue.steps(store)
    if resume == "latest":
        return everything
    if resume == "none":
        return [step for step in everything if _made_by(store, step) == job]
    if resume.removeprefix("step-").isdecimal():
        step = int(resume.removeprefix("step-"))
        newer = [other for other in everything if other > step and _made_by(store, other) == job]
        if step in everything:
            return [*newer, *(other for other in everything if other <= step)]
        raise Ended(
            Cause.BAD_SPEC, f"checkpoint.resume: {store.place} has no step {step}; it has {everything or 'none'}"
        )
    raise Ended(Cause.BAD_SPEC, f"checkpoint.resume: {resume!r} is none of latest, none, step-N")


def _made_by(store: Store, step: int) -> int | None:
    try:
        return read_manifest(store, step).job
    except ValueError:
        return None
