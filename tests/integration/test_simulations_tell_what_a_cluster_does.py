"""One core, one truth: a live cluster in stepped time and `jct simulate`'s own simulation, side by side."""

import asyncio
import random
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from stepped_cluster import KIND, stepped_cluster

from policies.jct.menu import build_menu
from policies.model.cluster import MeasuredMenu, MeasuredRow, MenuRequest
from policies.model.device import DeviceKind
from policies.model.families import family
from policies.registry import find
from scheduler.protocol.fake import step_time_s
from scheduler.simulator.simulate import Run, Simulation, spec_of
from scheduler.simulator.workload import Nodes, SimulatedJob, Workload

NODES, DEVICES = 16, 8
POLICY = "jct"
ROUND_S, START_S = 60.0, 30.0
MODELS = {"llama-7b": 32, "gpt2-xl": 16, "vgg-16": 4}
"""The most devices of each."""


def menu(model: str, most: int) -> MeasuredMenu:
    """The planner's, with the times that fake devices will take."""
    profile = family(model, 1, device_kind=KIND)
    request = MenuRequest((profile,), global_batch=64, min_devices=1, max_devices=most, microbatch_size=1)
    entries = build_menu(request, (DeviceKind(KIND),)).entries
    rows = [
        MeasuredRow(KIND, (), entry.devices, entry.plan, step_time_s(entry.plan, KIND, profile), START_S)
        for entry in entries
    ]
    return MeasuredMenu(tuple(rows))


def workload(count: int, seed: int) -> Workload:
    """Heavy-tailed work, more than the cluster can take at once."""
    chance, menus = random.Random(seed), {model: menu(model, most) for model, most in MODELS.items()}
    jobs, at = [], 1.0
    for number in range(count):
        model = chance.choice(list(menus))
        alone_s = next(row.step_time_s for row in menus[model].rows if row.devices == 1)
        work_s = min(12_000.0, 4_000 * chance.paretovariate(0.9))
        jobs.append(SimulatedJob(f"job-{number}", at, model, max(50, round(work_s / alone_s)), 4))
        at += 0.5 + chance.expovariate(1 / 20)
    return Workload(tuple(jobs), menus)


async def live(folder: Path, found: Workload) -> dict[str, float]:
    """Each job's completion time, by name."""
    submissions = [
        (job.submit_s, changed(spec_of(job, found.menus[job.application], int(job.steps)), profile=job.application),
         job.application)
        for job in found.jobs
    ]  # fmt: skip
    async with stepped_cluster(
        folder, found.menus, nodes=NODES, devices=DEVICES, policy=POLICY, round_s=ROUND_S, start_s=START_S
    ) as cluster:
        done = await cluster.play(submissions)
    return {job.spec.name: ((job.ended_us or 0) - job.submitted_us) / 1e6 for job in done}


def simulated(found: Workload) -> tuple[dict[str, float], Run]:
    run = Simulation(found, [Nodes(NODES, DEVICES, KIND)], find(POLICY), ROUND_S).play()
    return {job.name: run.ends_s[job.name] - job.submit_s for job in found.jobs}, run


@pytest.mark.long
def test_completion_times_are_those_of_the_simulation(tmp_path: Path) -> None:
    found = workload(count=30, seed=1)
    expected, run = simulated(found)
    assert sum(run.starts.values()) > 1.3 * len(found.jobs), "hardly any job was ever resized or preempted"
    assert asyncio.run(live(tmp_path, found)) == pytest.approx(expected, rel=0.02)
