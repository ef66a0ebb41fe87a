"""The next generation while the present one trains: joined in a thread, known to be ready, dropped or withdrawn."""

import threading

from scheduler.protocol.messages import Cause, Target
from worker.abilities import is_synchronous, unfit
from worker.control import Control
from worker.errors import Ended
from worker.rendezvous import Rendezvous
from worker.reshard import carried
from worker.transport import connect_store
from worker.world import World, enter

PREPARE_S = 120.0


class Proposal:
    """The next generation, in a member of the present one: joins its store in a thread while training goes on.

    In the pilot's member the thread also waits for everybody else.
    """

    def __init__(self, control: Control, present: World, is_pilot: bool) -> None:
        self._control, self._present, self._is_pilot = control, present, is_pilot
        self._lock = threading.Lock()
        self._highest = present.generation
        self._open: int | None = None
        self._ready: int | None = None
        self._joined: dict[int, World] = {}
        self._threads: dict[int, threading.Thread] = {}
        control.listen(self._look)

    @property
    def known(self) -> bool:
        """One is proposed, and neither dropped nor withdrawn."""
        return self._open is not None

    @property
    def carries(self) -> bool:
        """Layers go between members that train now, and a step leaves their state alone until its end."""
        world = self._joined.get(self._open or 0)
        if world is None or not is_synchronous(self._present.plan) or not is_synchronous(world.plan):
            return False
        return bool(carried(self._present.plan, self._present.members, world.plan, world.members))

    @property
    def ready(self) -> int | None:
        """The proposed generation's number once all members of both generations are in its store."""
        with self._lock:
            return self._ready if self._ready == self._open else None

    def settle(self, generation: int) -> World:
        """The world of a generation that the header has announced; a withdrawal after that comes too late."""
        self._threads[generation].join(PREPARE_S)
        return self._joined[generation]

    def drop(self, why: str) -> None:
        """No change after all: newcomers are told, and the number is never used again."""
        with self._lock:
            generation, self._open, self._ready = self._open, None, None
        if self._is_pilot and generation in self._joined:
            self._joined[generation].meet(lambda: None).set("switch", {"abort": why})

    def _look(self) -> None:
        """Called with each Target: begin to prepare what it proposes, drop what it does not propose any more."""
        target = self._control.target
        if self._open is not None and target.generation != self._open:
            self.drop("it was withdrawn")
        if self._open is None and target.generation > self._highest and target.store is not None:
            self._open = self._highest = target.generation
            thread = threading.Thread(target=self._prepare, args=(target, target.store), name="prepare", daemon=True)
            self._threads[target.generation] = thread
            thread.start()

    def _prepare(self, target: Target, store: str) -> None:
        """Join the store; the pilot waits there for everybody, for PREPARE_S, or until the daemon withdraws."""

        def check() -> None:
            if self._open != target.generation:
                raise Ended(Cause.STOPPED, "it was withdrawn")

        try:
            world = enter(target, store, PREPARE_S)
            meet = Rendezvous(connect_store(store, PREPARE_S), world.prefix, check)
            self._joined[target.generation] = world
            meet.set(f"ready/{target.member}", unfit(world.plan))
            if self._is_pilot:
                everyone = {*self._present.members, *world.members}
                answers = meet.gather([f"ready/{member}" for member in sorted(everyone)], PREPARE_S)
                refusals = [answer for answer in answers if answer]
                if refusals:
                    raise Ended(Cause.NOT_SUPPORTED, refusals[0])
                self._ready = target.generation
        except Ended as end:
            if self._is_pilot:
                self._control.dropped(target.generation, end.message)
                if self._open == target.generation:
                    self.drop(end.message)
