"""A job's own `log` hears all that the metrics file has, once, whatever shape the job has at the time."""

from gang import Site, metrics, plan

from scheduler.protocol.messages import Cause
from worker.launcher import Launched


def test_log_is_told_every_object_of_the_metrics_over_a_change_of_shape(site: Site) -> None:
    spec = site.spec(entrypoint="logging_job:job", directory=None, arguments={"every": 4}, hold_at=(5,))
    launched = site.launch(plan((0, 6)), spec)
    launched.wait(Launched.is_running)
    launched.change(plan((0, 3, 6)))
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED
    told = (launched.folder / "told.jsonl").read_text()
    assert told == (launched.folder / "metrics.jsonl").read_text()
    assert {line["step"] for line in metrics(launched) if "validation_loss" in line} == {0, 4, 8, 12}


def test_an_exception_in_log_is_the_users(site: Site) -> None:
    launched = site.launch(plan((0, 6)), site.spec(entrypoint="logging_job:log_that_raises", directory=None))
    launched.wait()
    assert launched.pilot.cause is Cause.USER_EXCEPTION
    assert "log raised" in launched.pilot.message
