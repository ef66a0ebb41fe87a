"""Forecasts: the core, the policy and virtual agents run copies of a cluster to the end of its jobs."""

import asyncio
import copy

import msgspec
import pytest
from small_cluster import SmallCluster

from policies.jct.priority import PriorityPolicy
from scheduler.core.entities import JobState
from scheduler.core.settings import US
from scheduler.forecast import fork as forks
from scheduler.forecast.ahead import Fate, Pace, run_ahead
from scheduler.forecast.outlook import Scores, look, score
from scheduler.forecast.process import ForecastProcess, Foresee, NotForeseen, World
from scheduler.protocol.spec import CheckpointSpec, JobSpec


def submit(cluster: SmallCluster, name: str = "job", **fields) -> int:
    fields = {"entrypoint": "m:f", "total_steps": 300, "min_devices": 4, "max_devices": 4, **fields}
    checkpoint = CheckpointSpec(dir=f"/checkpoints/{name}")
    spec = JobSpec(name=name, workdir="/w", checkpoint=checkpoint, **fields)
    return asyncio.run(cluster.submit(spec, "key", "eva", None))


def ahead(cluster: SmallCluster, seed: int = 0, **pace) -> dict[int, Fate]:
    data = forks.encode(forks.take(cluster.state, cluster.now_us()))
    fates = run_ahead(forks.decode(data), PriorityPolicy(), seed, Pace(round_s=1.0, **pace), lambda: False)
    return {fate.job: fate for fate in fates}


def outlooks(cluster: SmallCluster, futures: int = 5):
    return look([list(ahead(cluster, seed).values()) for seed in range(futures)], cluster.now_us(), Scores.of([]))


def until_done(cluster: SmallCluster, job: int) -> int:
    while cluster.state.jobs[job].state is not JobState.DONE:
        cluster.advance(1.0, 0.5)
    return cluster.state.jobs[job].ended_us


def test_a_running_jobs_end_is_in_the_range(cluster):
    job = submit(cluster)
    cluster.advance(8.0)
    seen = outlooks(cluster)[job]
    assert seen.start is None, "it has started"
    assert seen.end.low_us <= until_done(cluster, job) <= seen.end.high_us


def test_a_waiting_job_starts_when_its_devices_come_free(cluster):
    first = submit(cluster)
    cluster.advance(8.0)
    second = submit(cluster, "second")
    cluster.advance(1.0)
    fates = ahead(cluster)
    assert fates[first].end_us <= fates[second].start_us <= fates[first].end_us + 60 * US
    assert fates[second].end_us > fates[second].start_us
    assert fates[second].nodes == {"n0": 2, "n1": 2}
    seen = outlooks(cluster)[second]
    assert seen.start.low_us <= until_done(cluster, first) <= seen.start.high_us
    assert seen.end.low_us <= until_done(cluster, second) <= seen.end.high_us


def test_the_parts_of_a_foreseen_life_sum_to_its_length(cluster):
    submit(cluster)
    cluster.advance(8.0)
    second = submit(cluster, "second")
    fate = ahead(cluster)[second]
    parts = fate.queueing_s + fate.startup_s + fate.training_s + fate.preemptions_s + fate.cleanup_s
    assert parts == pytest.approx((fate.end_us - cluster.state.jobs[second].submitted_us) / US)


def test_a_job_that_never_fits_takes_nobodys_forecast_away(cluster):
    running = submit(cluster)
    cluster.advance(8.0)
    never = submit(cluster, "never", min_devices=99, max_devices=99)
    cluster.advance(1.0)
    fates = ahead(cluster)
    assert msgspec.msgpack.encode(list(fates.values())), "moments fit into the answer"
    assert fates[never].start_us is None
    assert fates[never].end_us is None
    assert fates[running].end_us is not None


def test_a_job_that_begins_hours_from_now_is_no_work_until_then(cluster):
    """Passes of the far future are far apart; the moment between two of them is looked at once."""
    submit(cluster, total_steps=100_000)
    cluster.advance(8.0)
    begin_us = cluster.now_us() + 3_600 * US
    later = submit(cluster, "later", begin_us=begin_us)
    looks = iter(range(10_000))
    data = forks.encode(forks.take(cluster.state, cluster.now_us()))
    fates = run_ahead(forks.decode(data), PriorityPolicy(), 0, Pace(), lambda: next(looks, None) is None)
    [fate] = [fate for fate in fates if fate.job == later]
    assert begin_us <= fate.start_us < fate.end_us


def test_looking_ahead_changes_nothing(cluster):
    submit(cluster)
    cluster.advance(8.0)
    submit(cluster, "second")
    before = copy.deepcopy(cluster.state)
    ahead(cluster)
    assert cluster.state == before


def test_one_seed_is_one_future(cluster):
    submit(cluster)
    cluster.advance(8.0)
    submit(cluster, "second")
    assert ahead(cluster, 3) == ahead(cluster, 3)
    assert ahead(cluster, 3) != ahead(cluster, 4)


def test_who_has_said_nothing_of_its_work_has_no_end_before_its_probe(cluster):
    job = submit(cluster, total_steps=None)
    assert outlooks(cluster)[job].end is None
    cluster.advance(8.0)
    assert outlooks(cluster)[job].end is not None, "the probe has told the steps"


def test_commands_end_as_their_equals_did(cluster):
    def command(name: str) -> int:
        return submit(
            cluster, name, entrypoint="", command=("sleep", "1"), total_steps=500, min_devices=1, max_devices=1
        )

    first = command("sleeper-a")
    assert outlooks(cluster)[first].end is None, "nothing tells how long a program takes"
    others = [command(f"sleeper-{n}") for n in range(3)]
    for job in (first, *others):
        until_done(cluster, job)
    again = command("sleeper-b")
    seen = outlooks(cluster)[again].end
    assert seen.low_us <= until_done(cluster, again) <= seen.high_us


def test_a_command_that_tells_its_steps_ends_when_they_are_done(cluster):
    job = submit(cluster, entrypoint="", command=("train",), total_steps=1_000, min_devices=1, max_devices=1)
    cluster.advance(8.0)
    assert outlooks(cluster)[job].end is None, "it has told nothing yet"
    cluster.state.progress[job].step, cluster.state.progress[job].step_time_s = 400, 0.5
    seen = outlooks(cluster)[job].end
    assert seen.low_us <= cluster.now_us() + 300 * US <= seen.high_us
    assert seen.high_us < cluster.now_us() + 400 * US


def test_a_future_that_is_broken_off_knows_no_end(cluster):
    job = submit(cluster, total_steps=10_000_000)
    cluster.advance(8.0)
    assert ahead(cluster, passes=1, periodic_s=1.0)[job].end_us is None
    assert outlooks(cluster)[job].end is not None


def test_ranges_are_as_wide_as_they_must_have_been():
    fates = [[Fate(1, 0, end_us=US * end, training_s=1.0)] for end in (90, 100, 110)]
    narrow, wide, late = (
        look(fates, 0, Scores.of(scores))[1].end for scores in ([0.0] * 200, [4.0, -4.0] * 100, [4.0] * 200)
    )
    assert wide.low_us < narrow.low_us <= narrow.mid_us == wide.mid_us <= narrow.high_us < wide.high_us
    assert late.high_us == wide.high_us
    assert late.low_us > wide.low_us, "who is always late is given no earlier begin"


def test_scores_count_deviations():
    assert score(0, 100 * US, 0.5, 100 * US) == 0.0
    assert score(0, 100 * US, 0.5, 200 * US) == pytest.approx(1.386, abs=1e-3)


def test_a_process_of_its_own_answers_and_dies_when_it_is_late(cluster):
    job = submit(cluster)
    cluster.advance(8.0)
    data = forks.encode(forks.take(cluster.state, cluster.now_us()))

    async def story():
        process = ForecastProcess()
        world = World(data, "priority")
        first, second = await process.foresee(Foresee((world, world), 1, 2))
        assert first == second, "equal worlds have equal futures"
        assert [fate.job for future in first for fate in future] == [job, job]
        with pytest.raises(NotForeseen, match="unknown policy 'none'"):
            await process.foresee(Foresee((World(data, "none"),), 1))
        hasty = ForecastProcess(limit_s=0.01)
        with pytest.raises(NotForeseen, match="took over"):
            await hasty.foresee(Foresee((world,), 1))
        assert hasty.pid is None
        await process.close()

    asyncio.run(story())
