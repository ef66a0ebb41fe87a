"""Whatever happens to the core, the database loads again as the state that the daemon had."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cluster import SmallCluster

from scheduler.core.errors import JctError
from scheduler.core.events import Change
from scheduler.core.state import State
from scheduler.protocol.spec import JobSpec

SPEC = JobSpec(name="j", entrypoint="m:f", workdir="/w", global_batch=8, total_steps=40, max_devices=2)
WHICH = st.integers(1, 6)
ACTS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 4), st.integers(0, 100)),
    st.tuples(st.sampled_from(["cancel", "hold", "release"]), WHICH),
    st.tuples(st.just("priority"), WHICH, st.integers(0, 100)),
    st.tuples(st.just("advance"), st.sampled_from([0.25, 1.0, 4.0])),
)


async def _set_priority(cluster: SmallCluster, job: int, priority: int) -> None:
    await cluster.ask(lambda number: Change(request=number, job=job, actor="u", changes={"priority": priority}))


async def act(cluster: SmallCluster, name: str, *values: float) -> None:
    match name:
        case "submit":
            spec = msgspec.structs.replace(SPEC, max_devices=values[0])
            await cluster.submit(spec, "k", "u", f"key-{cluster.state.counters.job}")
            await _set_priority(cluster, cluster.state.counters.job - 1, values[1])
        case "cancel":
            await cluster.cancel(values[0], "u", "")
        case "hold":
            await cluster.hold(values[0], "u")
        case "release":
            await cluster.release(values[0], "u")
        case "priority":
            await _set_priority(cluster, values[0], values[1])
        case "advance":
            cluster.advance(values[0])


def remembered(state: State) -> dict[str, object]:
    """What must survive. A waiting job's sentence changes with every pass; only its code is worth a commit."""
    return {
        "jobs": {id: replace(job, reason="") for id, job in state.jobs.items()},
        "attempts": dict(sorted(state.attempts.items())),
        "generations": dict(sorted(state.generations.items())),
        "members": dict(sorted(state.members.items())),
        "leases": state.leases,
        "nodes": state.nodes,
        "devices": state.devices,
        "profiles": state.profiles,
        "keys": state.keys,
        "counters": state.counters,
    }


@settings(max_examples=15, deadline=None)
@given(st.lists(ACTS, min_size=1, max_size=25))
def test_the_database_holds_what_the_daemon_knows(acts):
    with tempfile.TemporaryDirectory() as folder:
        cluster = SmallCluster(Path(folder))
        try:
            for name, *values in acts:
                try:
                    asyncio.run(act(cluster, name, *values))
                except JctError:
                    continue  # refused: no such job, or it is in no state for that
            assert remembered(cluster.repository.load()) == remembered(cluster.state)
        finally:
            cluster.close()
