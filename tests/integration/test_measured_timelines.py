"""A measured step comes back as the same value as a predicted one: every action once, in an order that can be."""

import itertools

from gang import Site, plan

from policies.schedules.lowering import orders_for
from scheduler.protocol.messages import Cause
from worker.executor import COMPUTING
from worker.timelines import read


def test_every_action_once_and_after_what_it_needs(site: Site) -> None:
    shape = plan((0, 2, 4, 6), schedule="zb-h1")
    launched = site.launch(shape, site.spec(directory=None, arguments={"steps": 60}))
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED
    timeline = read(launched.folder)
    wanted = [
        [str(i) for i in program if i.op in COMPUTING] for program in orders_for(shape)
    ]  # fmt: skip
    assert timeline.ranks == 3
    for rank in range(3):
        spans = [span for span in timeline.spans if span.rank == rank]
        assert [str(span.action) for span in spans] == wanted[rank]
        assert all(span.start_s <= span.end_s for span in spans)
        assert all(before.end_s <= after.start_s for before, after in itertools.pairwise(spans))
    ends = {str(span.action): span.end_s for span in timeline.spans}
    assert ends["F0@0"] < ends["F0@1"] < ends["F0@2"] < ends["I0@2"] < ends["I0@1"] < ends["I0@0"]
    assert timeline.makespan_s == max(ends.values())


def test_a_schedule_that_is_not_there_yet_is_refused_by_name(site: Site) -> None:
    launched = site.launch(plan((0, 3, 6), schedule="sliced-1f1b"), site.spec(directory=None))
    launched.wait()
    refused = [one for one in launched.reports.values() if one.cause is Cause.NOT_SUPPORTED]
    assert refused
    assert "slicing sequences" in refused[0].message
