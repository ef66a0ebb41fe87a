"""What people write down about the cluster: teams, users, queues, priority classes, drains and reservations.

Each is a frozen value under a name of its kind; None means "no limit". `RECORDS` names the kinds.
"""

from dataclasses import dataclass
from typing import ClassVar

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """weight: its fair share, against the others'. priority: added to that of its jobs. max_pending: jobs that wait.

    capped_lease: first lease made under the present caps; older ones may exceed a cap that was lowered below what was
    in use.
    """

    kind: ClassVar[str] = "team"
    name: str
    weight: float = 1.0
    priority: int = 0
    max_devices: int | None = None
    max_running: int | None = None
    max_pending: int | None = None
    capped_lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Caps of one person, over all teams. team: where the person belongs, for lists."""

    kind: ClassVar[str] = "user"
    name: str
    team: str = "default"
    max_devices: int | None = None
    max_running: int | None = None
    max_pending: int | None = None
    capped_lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """teams: who may submit to it, all where empty. policy: orders its jobs, the daemon's own where empty.
    priority: added to that of its jobs. paused: its jobs are accepted but not started."""

    kind: ClassVar[str] = "queue"
    name: str
    teams: tuple[str, ...] = ()
    policy: str = ""
    priority: int = 0
    paused: bool = False
    max_devices: int | None = None
    max_running: int | None = None
    max_pending: int | None = None
    capped_lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A named priority. teams and users: who may use it; everybody where both are empty. guaranteed: what its jobs
    have of their minimum is never taken from them."""

    kind: ClassVar[str] = "class"
    name: str
    value: int
    teams: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    guaranteed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """No new work goes there. name: `node/ID` or `device/ID`; it outlives restarts and absences of what it names.

    automatic: made by the node's own checks, which also take it back.
    """

    kind: ClassVar[str] = "drain"
    name: str
    reason: str
    by: str
    since_us: int
    automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes kept for a team, or for nobody where team is empty, from one moment to another."""

    kind: ClassVar[str] = "reservation"
    name: str
    nodes: tuple[str, ...]
    from_us: int
    until_us: int
    team: str = ""
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Values of a job's `env_from`, encrypted with a key that is not in the database. name: the job's id. It goes when
    the job ends."""

    kind: ClassVar[str] = "secret"
    name: str
    sealed: str


Record = Team | User | Queue | PriorityClass | Drain | Reservation | Secret
Capped = Team | User | Queue
RECORDS: dict[str, type[Record]] = {
    kind.kind: kind for kind in (Team, User, Queue, PriorityClass, Drain, Reservation, Secret)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one user of one team has used. recent_gpu_s: halved every half-life; its value at recent_us.

    lost_gpu_s: spent on steps that no checkpoint kept.
    """

    team: str
    user: str
    gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    recent_gpu_s: float = 0.0
    recent_us: int = 0
