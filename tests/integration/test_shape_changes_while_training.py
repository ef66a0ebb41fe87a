"""A running job changes stages, ranks and schedule between two steps, and no bit of its losses tells."""

import os
import signal

import pytest
from gang import Site, curve, log, member_pids, metrics, plan

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause, Phase
from worker.launcher import Launched

LAYERS = 10


def shape(stage_rank: tuple[int, ...], schedule: str = "1f1b", bounds: tuple[int, ...] | None = None) -> ParallelPlan:
    stages = len(stage_rank)
    cuts = bounds or tuple(round(LAYERS * i / stages) for i in range(stages + 1))
    return plan(cuts, schedule=schedule, stage_rank=stage_rank)


def change_at(launched: Launched, generation: int, new: ParallelPlan) -> None:
    launched.wait(Launched.is_running)
    launched.change(new)
    launched.wait(Launched.is_running)
    assert launched.pilot.generation == generation


def arguments(steps: int) -> dict:
    return {"blocks": LAYERS - 2, "steps": steps}


def test_one_pool_through_five_shapes_equals_the_undisturbed_run(site: Site) -> None:
    """4 stages 1F1B -> 2 stages zero bubble -> 3 ranks with 6 V stages -> a moved layer -> 4 stages."""
    phases = [
        shape((0, 1), "zb-h1"),
        shape((0, 1, 2, 2, 1, 0), "zbv"),
        shape((0, 1, 2, 2, 1, 0), "zbv", (0, 1, 3, 5, 7, 8, 10)),
        shape((0, 1, 2, 3)),
    ]
    alone = site.launch(shape((0,), "gpipe"), site.spec(directory=None, arguments=arguments(15)))
    alone.wait()
    spec = site.spec(directory=None, arguments=arguments(15), hold_at=(3, 6, 9, 12))
    launched = site.launch(shape((0, 1, 2, 3)), spec)
    for number, new in enumerate(phases, start=2):
        change_at(launched, number, new)
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED, log(launched)
    assert curve(launched) == curve(alone)
    shapes = [line["plan"] for line in metrics(launched) if "loss" in line]
    assert [shapes[step] for step in (0, 3, 6, 12)] == ["4×4 1f1b", "2×4 zb-h1", "6×4 zbv", "4×4 1f1b"]


@pytest.mark.parametrize("new", [(0, 1, 8), (0, 6, 8), (0, 8)], ids=["to the right", "to the left", "together"])
def test_layers_that_move_beside_a_step_bring_everything_along(site: Site, new: tuple[int, ...]) -> None:
    """Running means, momentum, parameters that never get a gradient: validation sees them all."""
    alone = site.launch(plan((0, 8)), site.spec(entrypoint="buffered:job", directory=None))
    alone.wait()
    spec = site.spec(entrypoint="buffered:job", directory=None, hold_at=(5,))
    launched = site.launch(plan((0, 4, 8)), spec)
    change_at(launched, 2, plan(new))
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED, log(launched)
    told = ("step", "loss_hex", "grad_norm_hex", "validation_loss_hex")
    wanted, found = ([[line.get(key) for key in told] for line in metrics(one)] for one in (alone, launched))
    assert found == wanted


def test_a_member_that_leaves_frees_its_device_while_the_others_train(site: Site) -> None:
    launched = site.launch(shape((0, 1, 2)), site.spec(entrypoint="awkward:slow", arguments={"blocks": 8}))
    launched.wait(lambda it: len(it.reports) == 3 and (it.pilot.step or 0) >= 2)
    change_at(launched, 2, shape((0,)))
    launched.wait(lambda it: {m for m, r in it.reports.items() if r.phase is Phase.GONE} == {1, 2})
    assert [launched.reports[member].cause for member in (1, 2)] == [Cause.STOPPED] * 2
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) > step)
    assert launched.pilot.member == 0
    launched.stop(grace_s=60)
    launched.wait()
    assert launched.pilot.saved == launched.pilot.step


def test_a_plan_that_cannot_run_is_dropped_and_training_goes_on(site: Site) -> None:
    launched = site.launch(shape((0, 1)), site.spec(entrypoint="awkward:slow", arguments={"blocks": 8}))
    launched.wait(lambda it: len(it.reports) == 2 and (it.pilot.step or 0) >= 2)
    launched.change(shape((0, 1, 2), "no-such-schedule"))
    launched.wait(lambda it: "dropped" in it.reports[1].message)
    step = launched.reports[1].step or 0
    launched.wait(lambda it: (it.reports[1].step or 0) > step)
    assert launched.reports[1].generation == 1
    launched.wait(lambda it: it.reports[2].phase is Phase.GONE)
    assert launched.reports[2].cause is Cause.STOPPED
    launched.stop(grace_s=60)
    launched.wait()


def test_a_newcomer_that_dies_before_the_decision_drops_the_generation(site: Site) -> None:
    launched = site.launch(shape((0, 1)), site.spec(entrypoint="awkward:dies_as_a_newcomer", arguments={"blocks": 8}))
    launched.wait(lambda it: len(it.reports) == 2 and (it.pilot.step or 0) >= 2)
    launched.change(shape((0, 1, 2)))
    launched.wait(lambda it: 2 in it.reports and it.reports[2].phase is Phase.GONE)
    launched.withdraw(1, shape((0, 1)), (0, 1))
    launched.wait(lambda it: "dropped" in it.reports[1].message)
    step = launched.reports[1].step or 0
    launched.wait(lambda it: (it.reports[1].step or 0) > step)
    launched.stop(grace_s=60)
    launched.wait()
    assert launched.reports[1].saved == launched.reports[1].step


def test_a_job_saved_after_a_change_resumes_on_another_shape(site: Site) -> None:
    alone = site.launch(shape((0,)), site.spec(directory=None, arguments=arguments(120)))
    alone.wait()
    first = site.launch(shape((0, 1)), site.spec(arguments=arguments(120), hold_at=(5,)))
    change_at(first, 2, shape((0, 1, 2)))
    first.save()
    first.wait(lambda it: it.pilot.saved is not None)
    os.kill(member_pids(first)[1], signal.SIGKILL)
    first.wait()
    second = site.launch(shape((0, 1), "zb-h1"), site.spec(arguments=arguments(120)))
    second.wait()
    assert curve(first, second) == curve(alone)


@pytest.mark.parametrize("grace_s", [0, 30])
def test_a_stop_during_a_change_ends_everybody(site: Site, grace_s: float) -> None:
    launched = site.launch(shape((0, 1)), site.spec(entrypoint="awkward:slow", arguments={"blocks": 8}))
    launched.wait(lambda it: len(it.reports) == 2 and (it.pilot.step or 0) >= 2)
    launched.change(shape((0, 1, 2, 3)))
    launched.stop(grace_s=grace_s)
    launched.wait()
    assert all(report.phase is Phase.GONE for report in launched.reports.values())
