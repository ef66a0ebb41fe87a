"""One step of the core: the state, the moment, and the effects collected so far."""

from dataclasses import dataclass, field
from typing import Any

from scheduler.core.effects import Effects
from scheduler.core.entities import Entity
from scheduler.core.restraint import REPEATABLE, has_room, may_say
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State


@dataclass(slots=True)
class Turn:
    """now: microseconds of the daemon's clock. speaker: the node, or the key, whose message is taken; "" for none.

    Refused ones that nobody knows are one speaker.
    """

    state: State
    now: int
    settings: CoreSettings
    out: Effects = field(default_factory=Effects)
    speaker: str = ""

    def put(self, entity: Entity) -> None:
        self.state.put(entity, self.out)

    def note(
        self,
        kind: str,
        message: str,
        *,
        actor: str = "jctd",
        job: int | None = None,
        attempt: int | None = None,
        node: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> bool:
        """One line of the story. False: an agent has said too much of this kind, and it is left out."""
        if self._is_restrained(kind) and not self._is_counted(kind, node):
            return False
        self.state.note(
            self.out, self.now, kind, message, actor=actor, job=job, attempt=attempt, node=node, data=data
        )
        return True

    def may_note(self, kind: str) -> bool:
        """Whether one more line of this kind would be written now."""
        has_no_limit = not self._is_restrained(kind) or has_room(self.state.said, (self.speaker, kind), self.now)
        return has_no_limit or self._is_counted(kind, None)

    def _is_restrained(self, kind: str) -> bool:
        return bool(self.speaker) and kind in REPEATABLE

    def _is_counted(self, kind: str, node: str | None) -> bool:
        """Whether it may be written; the first that may not is told."""
        allowance = may_say(self.state.said, (self.speaker, kind), self.now)
        if allowance.first_too_many:
            whose = node or (self.speaker if self.speaker in self.state.nodes else None)
            self.state.note(self.out, self.now, "EventsLeftOut", allowance.told(kind), node=whose)
        return allowance.may

    def replan(self) -> None:
        """Something changed that a scheduling pass should see."""
        self.state.plan_wanted = True
