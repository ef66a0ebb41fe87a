"""One step of the core: the state, the moment, and the effects collected so far."""

from dataclasses import dataclass, field
from typing import Any

from scheduler.core.effects import Effects
from scheduler.core.entities import Entity
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State


@dataclass(slots=True)
class Turn:
    """now: microseconds of the daemon's clock."""

    state: State
    now: int
    settings: CoreSettings
    out: Effects = field(default_factory=Effects)

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
    ) -> None:
        self.state.note(
            self.out, self.now, kind, message, actor=actor, job=job, attempt=attempt, node=node, data=data
        )

    def replan(self) -> None:
        """Something changed that a scheduling pass should see."""
        self.state.plan_wanted = True
