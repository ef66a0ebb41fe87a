"""Policies that are not told step times see what jobs have shown, and estimates of the rest."""

from policies.model.cluster import (
    ClusterSnapshot,
    DeviceView,
    JobState,
    JobView,
    MeasuredMenu,
    MeasuredRow,
    MenuRequest,
)
from policies.model.decision import Decisions
from scheduler.simulator.estimating import Estimating
from scheduler.simulator.workload import named_plan


class Listening:
    """Keeps what it is told."""

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        self.told = {job.id: job.menu.measured for job in snapshot.jobs}
        return Decisions(snapshot.version)


def menu(**step_times_s: float) -> MeasuredMenu:
    """By kind, on one device; on two it is a third faster."""
    rows = [
        MeasuredRow(kind, (count,), count, named_plan("dp", count), seconds / (1.0, 1.5)[count - 1], 1.0)
        for kind, seconds in step_times_s.items()
        for count in (1, 2)
    ]
    return MeasuredMenu(tuple(rows))


def job(id: int, measured: MeasuredMenu, devices: tuple[str, ...] = ()) -> JobView:
    state = JobState.RUNNING if devices else JobState.PENDING
    plan = named_plan("dp", len(devices)) if devices else None
    return JobView(
        id, "t", 50, 0, state, MenuRequest((), 1, 1, 2, measured=measured), 10, devices, plan, preemptible=bool(devices)
    )


def told(jobs: list[JobView]) -> dict[int, dict[tuple[str, int], float]]:
    """Step times by job, kind and devices."""
    devices = [DeviceView(f"{kind}-{n}", f"{kind}-node", kind, None) for kind in ("new", "old") for n in range(4)]
    inner = Listening()
    Estimating(inner).decide(ClusterSnapshot(1, 0, tuple(devices), tuple(jobs)), 1)
    return {
        id: {(row.kind, row.devices): row.step_time_s for row in measured.rows}
        for id, measured in inner.told.items()
        if measured is not None
    }


def test_what_a_job_runs_is_known_and_the_rest_is_not() -> None:
    seen = told([job(1, menu(new=1.0, old=9.0), ("new-0",))])[1]
    assert seen["new", 1] == 1.0
    assert 0.5 < seen["new", 2] < 0.9
    assert seen["old", 1] < 5.0, "nobody has run on the old kind yet"


def test_jobs_of_one_program_share_what_they_show() -> None:
    program = menu(new=2.0)
    assert told([job(1, program, ("new-0",)), job(2, program)])[2]["new", 1] == 2.0


def test_what_a_kind_is_worth_is_learnt_from_other_programs() -> None:
    both = [
        job(number, program, (f"{kind}-{number // 2}",))
        for number, (program, kind) in enumerate(
            (program, kind) for program in [menu(new=k, old=4 * k) for k in (1.0, 2.0, 3.0)] for kind in ("new", "old")
        )
    ]
    stranger = told([*both, job(9, menu(new=1.0, old=4.0), ("new-3",))])[9]
    assert 2.0 < stranger["old", 1] / stranger["new", 1] < 5.0
