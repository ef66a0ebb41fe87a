"""kill -9 of any rank at any moment: the gang is free at once, the job resumes, and no sample is lost or doubled."""

import itertools
import os
import random
import signal
import time
from dataclasses import replace

import pytest
from gang import Site, curve, member_pids, metrics, plan

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause, Phase
from worker.launcher import Launched

LAYERS, STEPS = 8, 2000


def shape(chooser: random.Random) -> ParallelPlan:
    schedule, ranks = chooser.choice([("1f1b", (0, 1)), ("zb-h1", (0, 1, 2)), ("zbv", (0, 1, 1, 0)), ("gpipe", (0, 1))])
    inner = sorted(chooser.sample(range(1, LAYERS), len(ranks) - 1))
    return plan((0, *inner, LAYERS), schedule=schedule, stage_rank=ranks)


def other_cuts(shape: ParallelPlan, chooser: random.Random) -> ParallelPlan:
    """The same ranks and schedule: layers only move, beside a step."""
    inner = sorted(chooser.sample(range(1, LAYERS), len(shape.stages) - 1))
    cuts = itertools.pairwise((0, *inner, LAYERS))
    stages = [replace(stage, first=a, stop=b) for stage, (a, b) in zip(shape.stages, cuts, strict=True)]
    return replace(shape, stages=tuple(stages))


def all_have_ended(it: Launched) -> bool:
    return all(it.reports[member].phase in (Phase.EXITED, Phase.GONE) for member in it.members if member in it.reports)


def one_life(site: Site, chooser: random.Random) -> Launched:
    """Train with saves all the time, perhaps change shape or move layers, and lose one member at a random moment."""
    arguments = {"blocks": LAYERS - 2, "steps": STEPS, "every": 40}
    first = shape(chooser)
    launched = site.launch(first, site.spec(arguments=arguments, every_s=0.05))
    if chooser.random() < 0.8:
        launched.wait(Launched.is_running)
        if chooser.random() < 0.7:
            launched.change(other_cuts(first, chooser) if chooser.random() < 0.5 else shape(chooser))
    until = time.monotonic() + chooser.random() * 1.5
    while time.monotonic() < until and not launched.is_gone():
        launched.poll(max(0.0, until - time.monotonic()))
    pids = member_pids(launched)
    if pids:
        os.kill(pids[chooser.choice(sorted(pids))], signal.SIGKILL)
        killed = time.monotonic()
        if launched.generation == 1 and launched.is_running():
            launched.wait(all_have_ended, timeout_s=10)
        launched.stop(grace_s=0)  # what the daemon does: before the first step nobody watches the others' connections
        launched.wait(timeout_s=10)
        assert time.monotonic() - killed < 10, launched.reports
    launched.wait(timeout_s=10)
    launched.hang_up()
    return launched


def check(site: Site, seed: int, lives: int) -> None:
    chooser = random.Random(seed)
    lived = [one_life(site, chooser) for _ in range(lives)]
    reached = max([line["step"] for one in lived if (one.folder / "metrics.jsonl").exists() for line in metrics(one)])
    arguments = {"blocks": LAYERS - 2, "steps": reached, "every": 40}
    last = site.launch(plan((0, 4, 8)), site.spec(arguments=arguments))
    last.wait()
    alone = site.launch(plan((0, 8)), site.spec(directory=None, arguments=arguments))
    alone.wait()
    assert last.pilot.cause is Cause.FINISHED
    lived = [one for one in lived if (one.folder / "metrics.jsonl").exists()]
    for one in (*lived, last):
        assert curve(one).items() <= curve(alone).items()
    assert curve(*lived, last) == curve(alone)


def test_ten_kills(site: Site) -> None:
    check(site, seed=20260101, lives=10)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(5))
def test_fifty_kills(site: Site, seed: int) -> None:
    check(site, seed=seed, lives=10)
