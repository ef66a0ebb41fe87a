"""Which checkpoint a first generation goes on from, and whether it may: one of another model or job is refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.protocol.messages import Cause, Target
from worker.checkpoint import catalogue
from worker.checkpoint.loader import Loaded, Loader, candidates
from worker.checkpoint.manifest import Manifest
from worker.checkpoint.store import Store
from worker.control import Control
from worker.errors import Ended
from worker.generation import Generation
from worker.layer import Layer
from worker.rendezvous import Rendezvous
from worker.sdk import PipelineJob


@dataclass(frozen=True)
class Resume:
    """model: its fingerprint. wanted: of the job file, "latest", "none" or a step."""

    target: Target
    store: Store
    job: PipelineJob
    control: Control
    generation: Generation
    model: str
    wanted: str

    def load(self, layers: Sequence[Layer], meet: Rendezvous, timeout_s: float) -> Loaded:
        """Into these layers, which are all of this rank. All ranks come here together.

        Raises:
            Ended: no checkpoint is good, or the newest is of something else.
        """
        size = self.generation.plan.world_size
        loader = Loader(self.store, layers, meet, self.generation.rank, size, timeout_s, self._accept)
        if not self.generation.is_pilot:
            return loader.follow()
        try:
            catalogue.claim(self.store, self.target.job, self.target.attempt, self.target.spec.nonce)
        except OSError as error:
            trouble = f"checkpoint directory {self.store.place} cannot be written: {error.strerror}"
            self.control.note(trouble, of_loss=True)
        loaded = loader.lead(candidates(self.store, self.wanted, self.target.job))
        if loaded.lost:
            self.control.note(loaded.lost, of_loss=True)
        elif loaded.manifest is not None:
            self._warn_of_little_room(loaded.manifest)
        return loaded

    def _warn_of_little_room(self, last: Manifest) -> None:
        """A save that will not fit is better told before it is needed. The last checkpoint tells how much one takes."""
        needed = sum(layer.bytes for layer in last.layers)
        free = self.store.free_bytes()
        if free is not None and free < needed:
            self.control.note(
                f"{self.store.place} has {free / 1e6:.0f} MB free; a checkpoint takes about {needed / 1e6:.0f} MB"
            )

    def _accept(self, found: Manifest) -> None:
        """Raises Ended where going on from this checkpoint would silently train something else."""
        what = f"the checkpoint of step {found.step} in {self.store.place}"
        if found.fingerprint != self.model:
            raise Ended(
                Cause.CHECKPOINT_BROKEN,
                f"{what} is of another model ({found.fingerprint[:12]}, not {self.model[:12]}); "
                "use one directory a model",
            )
        precision = self.generation.plan.precision
        if found.plan.precision != precision:
            raise Ended(
                Cause.CHECKPOINT_BROKEN, f"{what} is in {found.plan.precision}, the plan asks for {precision}"
            )
        samples = self.job.samples_before(found.step)
        if (found.global_batch, found.samples, found.rng.seed) != (self.job.global_batch, samples, self.job.seed):
            raise Ended(
                Cause.CHECKPOINT_BROKEN,
                f"{what} was trained with global batch {found.global_batch}, seed {found.rng.seed} and {found.samples} "
                f"samples, not {self.job.global_batch}, {self.job.seed} and {samples}; some would be lost or doubled",
            )
