"""A global batch that grows over the first steps: the same losses on every shape, each sample once."""

import pytest
from gang import Site, curve, metrics, plan

from scheduler.protocol.messages import Cause
from worker.launcher import Launched

RAMPUP = [[3, 4], [6, 6]]
ARGUMENTS = {"steps": 10, "rampup": RAMPUP}


@pytest.fixture
def alone(site: Site) -> Launched:
    launched = site.launch(plan((0, 6)), site.spec(directory=None, arguments=ARGUMENTS))
    launched.wait()
    return launched


def test_every_step_trains_on_the_samples_after_the_last_ones(alone: Launched) -> None:
    samples = [line["samples"] for line in metrics(alone) if "samples" in line]
    sizes = [4, 4, 4, 6, 6, 6, 8, 8, 8, 8]
    assert [last - first + 1 for first, last in samples] == sizes
    assert [first for first, _ in samples] == [sum(sizes[:i]) for i in range(10)]
    assert alone.pilot.batch == 8


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_stages_and_a_change_in_the_middle_alter_no_bit(site: Site, alone: Launched, schedule: str) -> None:
    spec = site.spec(directory=None, arguments=ARGUMENTS, hold_at=(4,))
    launched = site.launch(plan((0, 2, 6), schedule=schedule), spec)
    launched.wait(Launched.is_running)
    launched.change(plan((0, 3, 6), schedule=schedule))
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED
    assert curve(launched) == curve(alone)


def test_a_resume_goes_on_with_the_next_sample(site: Site, alone: Launched) -> None:
    first = site.launch(plan((0, 6)), site.spec(arguments={**ARGUMENTS, "steps": 5}))
    first.wait()
    second = site.launch(plan((0, 3, 6)), site.spec(arguments=ARGUMENTS))
    second.wait()
    assert curve(first, second) == curve(alone)


@pytest.mark.parametrize(
    ("shares", "rampup", "words"),
    [((4,), [[3, 3]], "no whole micro-batches of 2"), ((2, 2), [[3, 2]], "each of 2 replicas")],
    ids=["size", "replicas"],
)
def test_a_batch_that_gives_no_whole_micro_batches_is_refused(
    site: Site, shares: tuple[int, ...], rampup: list[list[int]], words: str
) -> None:
    launched = site.launch(plan((0, 6), shares=shares), site.spec(directory=None, arguments={"rampup": rampup}))
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.NOT_SUPPORTED}
    assert words in launched.pilot.message
