"""What `jct` promises where hardly any job has a size to choose: the shortest first, and no stop that does not pay."""

import math
from dataclasses import replace

from policies.jct.joint import Joint
from policies.jct.patience import PATIENCE, waiting_bound_s
from policies.jct.problem import JobDemand, NodeRoom, Option, Options, Problem
from policies.jct.rigid import RUNS_ON

RESTART_S = 100.0


def menu(size: int) -> Options:
    return Options([Option("gpu", size, 1.0, RESTART_S, f"p{size}", (size,))])


def running(id: str, seconds: float, size: int, since_s: float = 1e5, **more: object) -> JobDemand:
    return JobDemand(id, 2e5, menu(size), seconds, 1e5, 0, since_s, placement={"n0": size}, plan=f"p{size}", **more)


def decided(*jobs: JobDemand, free: int) -> dict[str, int]:
    """Devices of each job that a pass on one node of 8 changes."""
    grants = Joint().allocate(Problem(0.0, (NodeRoom("n0", "gpu", 8, free),), jobs), 1000)
    return {grant.id: sum(grant.placement.values()) for grant in grants}


def test_the_shortest_starts_first_however_many_devices_it_needs() -> None:
    wide, thin = JobDemand("wide", 0.0, menu(8), 1_000.0), JobDemand("thin", 0.0, menu(1), 5_000.0)
    assert decided(wide, thin, free=8) == {"wide": 8}


def test_a_running_job_stops_for_one_that_is_much_shorter_than_what_is_left_of_it_and_only_then() -> None:
    left_s = 10_000.0
    much = JobDemand("new", 0.0, menu(8), 0.5 * left_s)
    little = JobDemand("new", 0.0, menu(8), (RUNS_ON + 0.1) * left_s)
    assert decided(running("old", left_s, 8), much, free=0) == {"old": 0, "new": 8}
    assert decided(running("old", left_s, 8), little, free=0) == {}


def test_a_training_without_checkpoints_is_stopped_only_where_its_work_counts_less() -> None:
    much = JobDemand("new", 0.0, menu(8), 5_000.0)
    assert decided(running("old", 10_000.0, 8, stop_loses_s=100.0), much, free=0) == {"old": 0, "new": 8}
    assert decided(running("old", 10_000.0, 8, stop_loses_s=5_000.0), much, free=0) == {}


def test_a_job_that_has_not_settled_is_left_alone() -> None:
    new = JobDemand("new", 0.0, menu(8), 10.0)
    assert decided(running("old", 10_000.0, 8, since_s=60.0), new, free=0) == {}


def test_a_job_beyond_its_bound_comes_before_shorter_ones() -> None:
    late_s = waiting_bound_s(PATIENCE, RESTART_S + 9_000.0) + 1.0
    late, brief = JobDemand("late", late_s, menu(8), 9_000.0), JobDemand("brief", 0.0, menu(8), 10.0)
    assert decided(late, brief, free=8) == {"late": 8}


def started_late(seconds: float, waited_s: float, since_s: float, **more: object) -> JobDemand:
    held = {"placement": {"n0": 8}, "plan": "p8"}
    return JobDemand("old", waited_s + since_s, menu(8), seconds, 8 * since_s, 0, since_s, **held, **more)


def test_of_jobs_beyond_their_bound_the_most_overdue_comes_first_and_of_equals_the_shortest() -> None:
    late_s = waiting_bound_s(PATIENCE, RESTART_S + 9_000.0) + 100.0
    brief, lengthy = JobDemand("z", late_s, menu(8), 8_000.0), JobDemand("a", late_s, menu(8), 9_000.0)
    assert decided(lengthy, brief, free=8) == {"z": 8}
    older = replace(lengthy, age_s=late_s + 5_000.0)
    assert decided(older, brief, free=8) == {"a": 8}


def test_a_job_that_started_beyond_its_bound_is_not_stopped_for_one_that_is_less_overdue() -> None:
    """They would stop one another, each with a start to pay for and a wait to begin anew."""
    bound_s = waiting_bound_s(PATIENCE, RESTART_S + 9_000.0)
    running_late = started_late(8_100.0, bound_s + 2_000.0, 1_000.0)
    new = JobDemand("new", bound_s + 100.0, menu(8), 9_000.0)
    assert decided(running_late, new, free=0) == {}
    assert decided(running_late, replace(new, age_s=bound_s + 5_000.0), free=0) == {"old": 0, "new": 8}
    in_time = started_late(8_100.0, bound_s - 2_000.0, 1_000.0)
    assert decided(in_time, new, free=0) == {"old": 0, "new": 8}


def test_only_the_first_that_is_blocked_beyond_its_bound_keeps_devices_free() -> None:
    """Each that did would leave devices idle that a more overdue one does not want."""
    late_s = waiting_bound_s(PATIENCE, RESTART_S + 9_000.0) + 1.0
    nodes = tuple(NodeRoom(f"n{n}", "gpu", 8, 4) for n in range(2))
    frozen = [replace(running(f"f{n}", 600.0, 4, frozen=True), placement={f"n{n}": 4}) for n in range(2)]
    late = [JobDemand(f"late{n}", late_s - n, menu(8), 9_000.0) for n in range(2)]
    brief = JobDemand("brief", 0.0, menu(4), 10.0)
    grants = Joint().allocate(Problem(0.0, nodes, (*frozen, *late, brief)), 1000)
    assert {grant.id: sum(grant.placement.values()) for grant in grants} == {"brief": 4}


def test_what_a_starved_job_will_have_is_kept_for_it_while_others_may_not_be_stopped() -> None:
    late_s = waiting_bound_s(PATIENCE, RESTART_S + 9_000.0) + 1.0
    late, brief = JobDemand("late", late_s, menu(8), 9_000.0), JobDemand("brief", 0.0, menu(1), 10.0)
    frozen = running("frozen", 600.0, 4, frozen=True)
    assert decided(frozen, late, brief, free=4) == {}


def test_one_among_many_that_can_bend_starts_smaller_where_its_size_is_not_free() -> None:
    menu_of_two = Options(Option("gpu", n, 1.0 / n, RESTART_S, f"b{n}", (n,)) for n in (2, 4))
    bends = JobDemand("bends", 0.0, menu_of_two, 400.0, asked=4)
    others = [running(str(n), 1e4, 1, frozen=True) for n in range(5)]
    assert decided(*others, bends, free=3) == {"bends": 2}


def test_one_that_has_outrun_its_work_and_one_that_fits_nowhere_have_an_order_too() -> None:
    """Nothing is left of either; a pass that cannot compare them decides nothing for anybody."""
    nowhere = JobDemand("a", 50.0, Options([]), 10.0)
    assert decided(running("z", 0.0, 4), nowhere, JobDemand("new", 0.0, menu(4), 10.0), free=4) == {"new": 4}


def test_of_equals_the_one_that_runs_goes_on() -> None:
    endless = running("a", math.inf, 8)
    assert decided(endless, JobDemand("b", 60.0, menu(8), math.inf), free=0) == {}
