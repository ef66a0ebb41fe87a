"""Two stages of real compute, a core each, and strangers that compute on one of the cores: the job gives way and comes
back, and its losses show nothing of it. Nobody tells it of them."""

import os
from pathlib import Path

import pytest
from gang import Site, curve, plan

from agent.forest.workbench import Disturbance, disturbed
from policies.ir.plan import ParallelPlan
from scheduler.protocol.spec import AdaptSpec
from worker.launcher import Launched

CORES = sorted(os.sched_getaffinity(0))[:2]
BLOCKS = 10
HOME = plan((0, 6, 12), microbatches=8, size=2)
ARGUMENTS = {"width": 256, "blocks": BLOCKS, "global_batch": 16, "dropout": 0.5}
PATIENCE_S = 600.0

pytestmark = [pytest.mark.long, pytest.mark.skipif(len(CORES) < 2, reason="two stages need a core each")]


def neighbours() -> list[Disturbance]:
    """So many that they stand out from whatever else this machine does now."""
    return [Disturbance("compute", 1.0, CORES[0])] * (3 + round(os.getloadavg()[0]))


def first_stage(launched: Launched) -> int:
    """How many layers it has."""
    found = launched.pilot.plan
    assert isinstance(found, ParallelPlan)
    return len(found.stages[0].layers)


def test_layers_leave_a_core_that_strangers_use_and_come_back_when_they_go(site: Site, tmp_path: Path) -> None:
    arguments = {**ARGUMENTS, "steps": 1_000_000, "cores": CORES}
    probe = site.launch(None, site.spec("probe", "pinned:job", arguments=arguments, microbatch_size=2, directory=None))
    probe.wait()
    spec = site.spec(
        entrypoint="pinned:job", arguments=arguments, directory=None, profile=probe.reports[0].profiles[0],
        adapt=AdaptSpec(threshold=0.8, held_s=1, cooldown_s=1, horizon_s=600),
    )  # fmt: skip
    launched = site.launch(HOME, spec)
    launched.wait(lambda it: it.is_running() and (it.pilot.step or 0) >= 20)
    with disturbed(neighbours(), apart=True):
        launched.wait(lambda it: it.pilot.revision >= 1 and first_stage(it) < 6, PATIENCE_S)
    launched.wait(lambda it: it.pilot.plan == HOME, PATIENCE_S)
    launched.stop(grace_s=0)
    launched.wait()
    found = curve(launched)
    alone = site.launch(
        plan((0, 12), microbatches=8, size=2),
        site.spec(entrypoint="pinned:job", arguments={**ARGUMENTS, "steps": len(found)}, directory=None),
    )
    alone.wait(timeout_s=PATIENCE_S)
    assert found == curve(alone)
