"""Stages with their own numbers of replicas train as one process does (DYN-08)."""

import math

import pytest
from gang import Site, curve, log, plan

from policies.cost import Memory
from policies.pricing import uneven_plan
from scheduler.protocol.messages import Cause
from worker.launcher import Launched


def finished(launched: Launched) -> Launched:
    launched.wait()
    assert all(report.cause is Cause.FINISHED for report in launched.reports.values()), log(launched)
    launched.hang_up()
    return launched


@pytest.mark.parametrize("replicas", [(2, 1), (1, 2), (1, 2, 1)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_losses_equal_those_of_one_process(site: Site, replicas: tuple[int, ...], schedule: str) -> None:
    arguments = {"steps": 12}
    memory = Memory("float64")
    bounds = (0, 3, 6) if len(replicas) == 2 else (0, 2, 4, 6)
    alone = finished(site.launch(plan((0, 6), precision="float64"), site.spec(directory=None, arguments=arguments)))
    uneven = uneven_plan(bounds, replicas, 4, 2, schedule, memory)
    spread = finished(site.launch(uneven, site.spec(directory=None, arguments=arguments)))
    expected, found = curve(alone), curve(spread)
    assert list(found) == list(expected)
    for step, (loss, _) in expected.items():
        assert math.isclose(float.fromhex(found[step][0]), float.fromhex(loss), rel_tol=1e-10), step
