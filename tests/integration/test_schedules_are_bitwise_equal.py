"""Every synchronous schedule on any number of stages and ranks computes what one process computes, bit for bit."""

from dataclasses import replace

import pytest
from gang import Site, curve, log, metrics, plan

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause
from worker.launcher import Launched

LAYERS = 10
ARGUMENTS = {"blocks": LAYERS - 2, "steps": 12}


def bounds(stages: int) -> list[int]:
    return [round(LAYERS * i / stages) for i in range(stages + 1)]


def on_ranks(schedule: str, stage_rank: tuple[int, ...], microbatches: int = 4) -> ParallelPlan:
    return plan(bounds(len(stage_rank)), microbatches, 8 // microbatches, schedule, stage_rank=stage_rank)


def run(site: Site, shape: ParallelPlan, **spec) -> Launched:
    launched = site.launch(shape, site.spec(directory=None, arguments=ARGUMENTS, **spec))
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.FINISHED}, log(launched)
    launched.hang_up()
    return launched


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, shims) -> dict[int, dict]:
    """Curves of the undivided model in one process, by micro-batch count."""
    site = Site(tmp_path_factory.mktemp("alone"), shims)
    return {count: curve(run(site, on_ranks("gpipe", (0,), count))) for count in (4, 8)}


CASES = [
    *(
        (schedule, tuple(range(stages)))
        for schedule in ("1f1b", "eager-1f1b", "zb-h1", "zb-h2")
        for stages in (1, 2, 4)
    ),
    ("gpipe", (0, 1, 2)),
    ("zb-h1", (0, 1, 2)),
    ("interleaved-1f1b", (0, 1, 0, 1)),
    ("interleaved-1f1b", (0, 1, 0, 1, 0, 1)),
    ("zbv", (0, 1, 1, 0)),
    ("zbv", (0, 1, 2, 2, 1, 0)),
    ("dualpipev", (0, 1, 1, 0)),
]


@pytest.mark.parametrize(("schedule", "stage_rank"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_equal_to_one_process(site: Site, alone: dict, schedule: str, stage_rank: tuple[int, ...]) -> None:
    launched = run(site, on_ranks(schedule, stage_rank))
    assert curve(launched) == alone[4]


def test_numbers_as_inputs_and_running_means_change_nothing(site: Site) -> None:
    """No input's gradient is asked for; what is computed twice is counted once. Validation sees the running means."""
    whole = plan((0, 3, 8))
    again = replace(whole, stages=tuple(replace(stage, recompute=True) for stage in whole.stages))
    found = []
    for shape in (plan((0, 8), schedule="gpipe"), whole, plan((0, 3, 8), schedule="zb-h1"), again):
        launched = site.launch(shape, site.spec(entrypoint="buffered:job", directory=None))
        launched.wait()
        assert launched.pilot.cause is Cause.FINISHED, log(launched)
        told = ("step", "loss_hex", "grad_norm_hex", "validation_loss_hex")
        found.append([[line.get(key) for key in told] for line in metrics(launched)])
    assert len(found[0]) == 12 + 13
    assert found[1:] == [found[0]] * 3


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_recomputing_a_stages_activations_changes_nothing(site: Site, alone: dict, schedule: str) -> None:
    shape = on_ranks(schedule, (0, 1))
    first, last = shape.stages
    launched = run(site, replace(shape, stages=(replace(first, recompute=True), last)))
    assert curve(launched) == alone[4]


def test_bfloat16_computes_less_exactly_and_equally_on_any_number_of_stages(site: Site, alone: dict) -> None:
    curves = [curve(run(site, replace(on_ranks("1f1b", ranks), precision="bfloat16"))) for ranks in ((0,), (0, 1, 2))]
    assert curves[0] == curves[1]
    for step, (loss, _) in curves[0].items():
        exact = float.fromhex(alone[4][step][0])
        assert float.fromhex(loss) != exact
        assert abs(float.fromhex(loss) - exact) < 0.05 * exact


@pytest.mark.parametrize("schedule", ["dualpipev", "zbv"])
def test_more_microbatches_than_the_pipeline_is_deep(site: Site, alone: dict, schedule: str) -> None:
    assert curve(run(site, on_ranks(schedule, (0, 1, 1, 0), 8))) == alone[8]
