"""What an agent's node logic needs of whatever runs members: real shims, or fake gangs that only consume time."""

from collections.abc import Callable, Iterable
from typing import Protocol

from scheduler.protocol.messages import Cause, Phase, Report, Target
from scheduler.protocol.slowdown import Slowdown

OnReport = Callable[[Report], None]


class Gangs(Protocol):
    """Calls return at once; what happens comes back through on_report, the whole latest value each time."""

    def adopt(self, on_report: OnReport) -> list[Report]:
        """Members of an earlier agent, alive or ended, as far as they are known at once."""

    def spawn(self, target: Target, secrets: dict[str, str]) -> None:
        """secrets: for the member's environment alone."""

    def deliver(self, target: Target) -> None: ...

    def tell(self, slowdowns: Iterable[Slowdown]) -> None:
        """The newest of the node's devices: each gang hears of its own."""

    def forget(self, key: tuple[int, int, int]) -> None: ...

    async def close(self) -> None:
        """Let go of everything; what runs goes on running."""


def refusal(target: Target, why: str, cause: Cause = Cause.START_FAILED) -> Report:
    """The end of a member that could not be started here."""
    return Report(
        job=target.job, attempt=target.attempt, member=target.member, seq=1, phase=Phase.GONE,
        cause=cause, message=why,
    )
