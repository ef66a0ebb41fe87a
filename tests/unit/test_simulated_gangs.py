"""Simulated gangs tell the core what real ones would."""

from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.cluster import MeasuredMenu, MeasuredRow
from policies.registry import find
from scheduler.simulator.simulate import Simulation
from scheduler.simulator.workload import Nodes, SimulatedJob, Workload

STAGES = tuple(StagePlan(stage, stage + 1, (2 * stage, 2 * stage + 1), (4, 4)) for stage in range(4))
"""Eight devices in four stages: rank 6 is the pilot."""


def test_a_gang_of_several_stages_runs_once_its_pilot_tells_of_a_step() -> None:
    row = MeasuredRow("gpu", (4, 4), 8, ParallelPlan(STAGES, 8, 1), step_time_s=2.0, restart_s=10.0)
    job = SimulatedJob("staged", 0.0, "staged", steps=50.0, asked=8)
    workload = Workload((job,), {"staged": MeasuredMenu((row,))})
    simulation = Simulation(workload, [Nodes(2, 4)], find("jct"), round_s=5.0)
    run = simulation.play()
    attempt = simulation.state.attempts[1, 1]
    assert attempt.running_us is not None, "it would never be preempted, resized or judged"
    assert 10.0 < attempt.running_us / 1e6 <= 12.5
    assert run.ends_s == {"staged": 110.0}
