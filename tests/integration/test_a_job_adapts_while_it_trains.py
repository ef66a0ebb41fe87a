"""A device slows down under a training job: it changes its own cut, and no step and no bit of its losses is lost."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from gang import Site, curve, log, member_pids, metrics, plan

from policies.ir.plan import ParallelPlan
from policies.model.profile import LayerProfile, ModelProfile
from scheduler.protocol.messages import Cause, Phase
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.spec import AdaptSpec, AttemptSpec
from worker.launcher import Launched
from worker.versions import WINDOW

BLOCKS, PACE_S = 10, 0.004
QUICK = AdaptSpec(threshold=0.6, held_s=1, cooldown_s=1, horizon_s=600)
HOME = plan((0, 3, 6, 9, 12), microbatches=8, size=2)
ENDLESS = 100_000


def profile(pace_s: float = PACE_S) -> ModelProfile:
    """As a probe would find it: blocks of one pace between a light first and last layer."""
    light = LayerProfile("light", 1e-4, 1e-4, 1e-4, 2048, 0, 4096)
    block = LayerProfile("block", pace_s, 2 * pace_s, 0.0, 2048, 0, 4096)
    return ModelProfile("devices", 2, "cpu", (light, *[block] * BLOCKS, light))


class Weather:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "weather.json"

    def is_calm(self) -> None:
        self.path.unlink()

    def slows(self, **members: float) -> None:
        """slows(m2=3): member 2 takes three times as long."""
        self._is("slow", members)

    def fills(self, **members: float) -> None:
        """fills(m2=0.95): the device of member 2 has 5% of its memory left."""
        self._is("memory", members)

    def _is(self, what: str, members: dict[str, float]) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({what: {name[1:]: value for name, value in members.items()}}))
        fresh.rename(self.path)


def adapting(site: Site, weather: Weather, **changes: object) -> AttemptSpec:
    arguments = {"blocks": BLOCKS, "steps": ENDLESS, "global_batch": 16, "weather": str(weather.path)}
    arguments |= {"block_s": PACE_S}
    return site.spec(
        **{"entrypoint": "devices:job", "arguments": arguments, "adapt": QUICK, "profile": profile(), **changes}
    )


def fast(site: Site, weather: Weather, **changes: object) -> AttemptSpec:
    """At a quarter of the pace, where nothing is held back: too noisy to tell who is slow, but not that somebody is."""
    restless = AdaptSpec(threshold=0.6, held_s=0.05, cooldown_s=0.05, horizon_s=600)
    arguments = {"blocks": BLOCKS, "steps": ENDLESS, "global_batch": 16, "weather": str(weather.path), "block_s": 0.001}
    return adapting(site, weather, **{"adapt": restless, "arguments": arguments, "profile": profile(0.001), **changes})


def sizes(plan: ParallelPlan | None) -> list[int]:
    assert plan is not None
    return [len(stage.layers) for stage in plan.stages]


def undisturbed(site: Site, steps: int) -> dict[int, tuple[str, str]]:
    """The same training by one rank, without any pace."""
    arguments = {"blocks": BLOCKS, "steps": steps, "global_batch": 16}
    alone = site.launch(plan((0, 12), microbatches=8, size=2), site.spec(arguments=arguments, directory=None))
    alone.wait()
    return curve(alone)


def begun(launched: Launched) -> bool:
    """Its baseline is known."""
    return launched.is_running() and (launched.pilot.step or 0) >= (launched.pilot.resumed_step or 0) + 20


def test_layers_leave_a_slow_device_and_come_back_without_a_bit_of_difference(site: Site, tmp_path: Path) -> None:
    weather = Weather(tmp_path)
    launched = site.launch(HOME, adapting(site, weather, directory=None))
    launched.wait(begun)
    weather.slows(m1=3.0)
    launched.wait(lambda it: it.pilot.revision >= 1)
    changed = launched.pilot
    assert sizes(changed.plan)[1] < 3
    assert "rank 1 computes" in changed.message
    weather.is_calm()
    launched.wait(lambda it: it.pilot.plan == HOME)
    home = launched.pilot.revision
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) >= step + 20)
    assert launched.pilot.revision == home
    launched.stop(grace_s=0)
    launched.wait()
    found = curve(launched)
    assert sorted(found) == list(range(1, len(found) + 1))
    assert found == {step: values for step, values in undisturbed(site, len(found)).items() if step in found}


@pytest.mark.parametrize(
    ("schedule", "bounds", "stage_rank"),
    [("zb-h1", (0, 4, 8, 12), (0, 1, 2)), ("zbv", (0, 3, 6, 9, 12), (0, 1, 1, 0)), ("gpipe", (0, 4, 8, 12), (0, 1, 2))],
)
def test_no_schedule_shows_a_revision_in_its_losses(
    site: Site, tmp_path: Path, schedule: str, bounds: tuple[int, ...], stage_rank: tuple[int, ...]
) -> None:
    weather = Weather(tmp_path)
    home = plan(bounds, microbatches=8, size=2, schedule=schedule, stage_rank=stage_rank)
    launched = site.launch(home, fast(site, weather, directory=None))
    launched.wait(begun)
    weather.slows(m1=6.0)
    launched.wait(lambda it: it.pilot.revision >= 1)
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) >= step + 5)
    launched.stop(grace_s=0)
    launched.wait()
    found = curve(launched)
    assert found == undisturbed(site, len(found))


@pytest.mark.long
def test_an_asynchronous_job_adapts_between_two_windows(site: Site, tmp_path: Path) -> None:
    """2BW delays every gradient by one step wherever its layer is, so its losses do not tell either."""
    weather = Weather(tmp_path)
    home = plan((0, 4, 8, 12), microbatches=8, size=2, schedule="2bw")
    common = {"blocks": BLOCKS, "global_batch": 16, "clip": None}
    arguments = common | {"steps": ENDLESS, "weather": str(weather.path), "block_s": 0.001}
    launched = site.launch(home, fast(site, weather, directory=None, arguments=arguments))
    launched.wait(lambda it: it.is_running() and (it.pilot.step or 0) >= 15 * WINDOW)
    weather.slows(m1=6.0)
    launched.wait(lambda it: it.pilot.revision >= 1)
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) >= step + 2 * WINDOW)
    launched.stop(grace_s=0)
    launched.wait()
    found = curve(launched)
    steps = -(-len(found) // WINDOW) * WINDOW
    alone = site.launch(home, site.spec(arguments=common | {"steps": steps}, directory=None))
    alone.wait()
    assert found.items() <= curve(alone).items()


def test_a_job_that_was_not_asked_to_adapt_keeps_its_cut(site: Site, tmp_path: Path) -> None:
    weather = Weather(tmp_path)
    launched = site.launch(HOME, fast(site, weather, adapt=None, directory=None))
    launched.wait(begun)
    weather.slows(m1=6.0)
    launched.wait(lambda it: (it.pilot.step or 0) >= 50)
    assert launched.pilot.revision == 0
    assert launched.pilot.plan == HOME
    launched.stop(grace_s=0)
    launched.wait()


def test_a_slow_replica_is_given_fewer_microbatches(site: Site, tmp_path: Path) -> None:
    """Shares move nothing, so they also move where layers are too big to."""
    heavy = ModelProfile("devices", 2, "cpu", tuple(
        LayerProfile(one.name, one.forward_s, one.backward_input_s, 0.0, 2048, 0, 1 << 36) for one in profile().layers
    ))  # fmt: skip
    weather = Weather(tmp_path)
    start = plan((0, 6, 12), microbatches=8, size=2, shares=(4, 4))
    launched = site.launch(start, adapting(site, weather, directory=None, profile=heavy))
    launched.wait(begun)
    weather.slows(m1=2.0)  # the second replica of stage 0
    launched.wait(lambda it: it.pilot.revision >= 1)
    assert launched.pilot.plan is not None
    first, second = launched.pilot.plan.stages[0].shares
    assert first > second
    assert sizes(launched.pilot.plan) == [6, 6]
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) >= step + 10)
    launched.stop(grace_s=0)
    launched.wait()
    found = {line["step"]: line["loss"] for line in metrics(launched) if "loss" in line}
    for step, (loss, _) in undisturbed(site, len(found)).items():
        assert abs(found[step] - float.fromhex(loss)) < 1e-6, step


def test_layers_leave_a_device_before_its_memory_runs_out_and_stay_away(site: Site, tmp_path: Path) -> None:
    weather = Weather(tmp_path)
    launched = site.launch(HOME, fast(site, weather, directory=None))
    launched.wait(begun)
    weather.fills(m1=0.95)
    launched.wait(lambda it: it.pilot.revision >= 1)
    assert sizes(launched.pilot.plan)[1] < 3
    assert "rank 1 is short of memory, 95% used" in launched.pilot.message
    weather.fills(m1=0.5)
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) >= step + 20)
    assert sizes(launched.pilot.plan)[1] < 3
    launched.stop(grace_s=0)
    launched.wait()
    found = curve(launched)
    assert found == undisturbed(site, len(found))


def test_a_stop_and_a_next_generation_come_before_a_revision(site: Site, tmp_path: Path) -> None:
    weather = Weather(tmp_path)
    launched = site.launch(HOME, adapting(site, weather))
    launched.wait(begun)
    weather.slows(m1=3.0)
    smaller = plan((0, 4, 8, 12), microbatches=8, size=2)
    launched.change(smaller)
    launched.wait(Launched.is_running)
    weather.is_calm()  # the next generation begins undisturbed
    launched.wait(lambda it: it.pilot.generation == 2)
    assert launched.pilot.revision == 0, "the change came first"
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) >= step + 30)
    weather.slows(m1=3.0)
    launched.wait(lambda it: it.pilot.revision >= 1)
    assert sum(sizes(launched.pilot.plan)) == 12
    launched.stop(grace_s=60)
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.STOPPED}, log(launched)
    assert launched.pilot.saved == launched.pilot.step
    found = curve(launched)
    assert found == undisturbed(site, len(found))


def test_a_device_that_is_slow_while_the_job_is_resized_is_found_slow_by_the_next_generation(
    site: Site, tmp_path: Path
) -> None:
    """Another member is the pilot then; what the job was like undisturbed is left to it."""
    weather = Weather(tmp_path)
    launched = site.launch(HOME, adapting(site, weather, directory=None))
    launched.wait(begun)
    smaller = plan((0, 4, 8, 12), microbatches=8, size=2)
    weather.slows(m1=3.0)
    launched.change(smaller)
    launched.wait(lambda it: it.pilot.generation == 2 and it.pilot.revision >= 1)
    assert sizes(launched.pilot.plan)[1] < 4
    assert "rank 1 computes" in launched.pilot.message
    weather.is_calm()
    launched.wait(lambda it: it.pilot.plan == smaller)
    launched.stop(grace_s=0)
    launched.wait()
    found = curve(launched)
    assert found == undisturbed(site, len(found))


def test_a_neighbour_that_an_agent_foresees_from_the_first_step_on_is_no_part_of_what_is_normal(
    site: Site, tmp_path: Path
) -> None:
    weather = Weather(tmp_path)
    weather.slows(m1=3.0)
    launched = site.launch(HOME, adapting(site, weather, directory=None))
    launched.wait(Launched.is_running)
    launched.tell(
        Slowdown(
            device="cpu-1", ratio=3.0, low=2.0, high=4.0, confidence=0.9, source=Source.FOREST, contested=True
        )
    )
    launched.wait(lambda it: it.pilot.revision >= 1)
    assert sizes(launched.pilot.plan)[1] < 3
    assert "rank 1 computes" in launched.pilot.message
    launched.stop(grace_s=0)
    launched.wait()
    found = curve(launched)
    assert found == undisturbed(site, len(found))


def all_have_ended(it: Launched) -> bool:
    return all(it.reports[member].phase in (Phase.EXITED, Phase.GONE) for member in it.members)


def one_life(site: Site, weather: Weather, chooser: random.Random) -> Launched:
    """Trouble changes the cut, then goes from device to device, so that it changes again; then a member is killed."""
    launched = site.launch(HOME, fast(site, weather, every_s=0.3))
    launched.wait(begun)
    slow = 1
    weather.slows(m1=6.0)
    launched.wait(lambda it: it.pilot.revision >= 1)
    until = time.monotonic() + 6 * chooser.random()
    while (now := time.monotonic()) < until:
        slow = (slow + 1) % 4
        weather.slows(**{f"m{slow}": 6.0})
        flip = min(until, now + 2.5)
        while (now := time.monotonic()) < flip:
            launched.poll(flip - now)
    os.kill(chooser.choice(sorted(member_pids(launched).values())), signal.SIGKILL)
    launched.wait(all_have_ended, timeout_s=10)
    launched.wait(timeout_s=10)
    weather.is_calm()
    return launched


def test_a_kill_at_any_moment_of_a_change_loses_no_step(site: Site, tmp_path: Path) -> None:
    chooser = random.Random(20261130)
    weather = Weather(tmp_path)
    lived = [one_life(site, weather, chooser) for _ in range(4)]
    assert sum(report.revision for one in lived for report in one.reports.values()) >= len(lived)
    reached = max(line["step"] for one in lived for line in metrics(one))
    arguments = {"blocks": BLOCKS, "steps": reached + 3, "global_batch": 16}
    last = site.launch(plan((0, 6, 12), microbatches=8, size=2), site.spec(arguments=arguments))
    last.wait()
    assert last.pilot.cause is Cause.FINISHED, log(last)
    assert (last.pilot.resumed_step or 0) > 0
    expected = undisturbed(site, reached + 3)
    for one in (*lived, last):
        assert curve(one).items() <= expected.items()
    assert curve(*lived, last) == expected
