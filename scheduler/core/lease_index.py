"""Open leases by device and by attempt, so that with thousands of them nobody looks at all for one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.core.entities import Lease


@dataclass(slots=True)
class LeaseIndex:
    """Ids, oldest first. on: by device; of: by job and attempt."""

    on: dict[str, list[int]] = field(default_factory=dict)
    of: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    @classmethod
    def over(cls, leases: Iterable[Lease]) -> "LeaseIndex":
        index = cls()
        for lease in leases:
            index.add(lease)
        return index

    def add(self, lease: Lease) -> None:
        self.on.setdefault(lease.device, []).append(lease.id)
        self.of.setdefault((lease.job, lease.attempt), []).append(lease.id)

    def drop(self, lease: Lease) -> None:
        attempt = lease.job, lease.attempt
        self.on[lease.device].remove(lease.id)
        self.of[attempt].remove(lease.id)
        if not self.on[lease.device]:
            del self.on[lease.device]
        if not self.of[attempt]:
            del self.of[attempt]
