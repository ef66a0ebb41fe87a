"""The clocks of LIFECYCLE and other limits, all settable. Durations in seconds.

jobs_kept, keys_kept: jobs that have ended, and idempotency keys, in memory. retention_s: how long the database keeps
jobs that have ended; None for ever. auto_drain_share: of the nodes, at most this part (and always one) is drained at
once by checks of the nodes themselves. new_nodes: so many may register for the first time within ten minutes, twice
the largest cluster. pass_gap_s: between two passes, at least.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    node_silent_s: float = 15.0
    node_lost_s: float = 60.0
    judge_after_s: float = 30.0
    start_timeout_s: float = 300.0
    probe_timeout_s: float = 60.0
    stall_s: float = 60.0
    stall_steps: int = 20
    cancel_grace_s: float = 10.0
    blame_s: float = 2.0
    finish_grace_s: float = 30.0
    fault_limit: int = 3
    backoff_s: float = 5.0
    backoff_cap_s: float = 300.0
    avoid_s: float = 600.0
    replan_s: float = 10.0
    pass_gap_s: float = 0.0
    jobs_kept: int = 1_000
    keys_kept: int = 10_000
    retention_s: float | None = None
    half_life_s: float = 7 * 86_400.0
    auto_drain_share: float = 0.2
    new_nodes: int = 2_000


US = 1_000_000


def us(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * US)
