"""When forecasts are made: on change, on request, one at a time; and that nobody can break one off for the others."""

import asyncio

import pytest

from scheduler.core.entities import Job, Moment
from scheduler.core.errors import Code, JctError
from scheduler.core.events import Estimated
from scheduler.core.settings import US
from scheduler.core.state import State
from scheduler.forecast.ahead import Fate
from scheduler.forecast.forecaster import Forecaster
from scheduler.forecast.process import NotForeseen
from scheduler.protocol.spec import JobSpec

JOB = Job(id=1, spec=JobSpec(name="a", workdir="/w", entrypoint="m:f"), user="eva", priority=50, submitted_us=0)


class Slow:
    """Answers when it is let; every future is the same."""

    def __init__(self) -> None:
        self.asked = 0
        self.busy = self.most = 0
        self.let = asyncio.Event()
        self.fails = False

    async def foresee(self, question):
        self.asked += 1
        self.busy += 1
        self.most = max(self.most, self.busy)
        await self.let.wait()
        self.busy -= 1
        if self.fails:
            raise NotForeseen("the forecast took over 60 s")
        fate = Fate(1, 300 * US, 200 * US, 300 * US, completed=True, training_s=300.0)
        return tuple((((fate,),) * question.futures) for _ in question.worlds)

    async def close(self) -> None: ...


def made() -> tuple[Forecaster, Slow, list[object]]:
    state, posted, slow = State(epoch=1, jobs={1: JOB}), [], Slow()
    return Forecaster(state, slow, "priority", lambda: 100 * US, posted.append), slow, posted


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_asks_meanwhile_shares_the_answer_and_who_leaves_breaks_nothing_off():
    async def story():
        forecaster, slow, _ = made()
        asking = [asyncio.create_task(forecaster.outlook(1)) for _ in range(3)]
        await settle()
        assert slow.asked == 1
        asking[0].cancel()
        slow.let.set()
        second, third = await asyncio.gather(*asking[1:])
        assert second == third
        assert second.end is not None
        assert slow.asked == 1
        assert await forecaster.outlook(1) == second, "it keeps for a while"

    asyncio.run(story())


def test_one_question_at_a_time():
    async def story():
        forecaster, slow, _ = made()
        tasks = [asyncio.create_task(forecaster.outlook(1)), asyncio.create_task(forecaster.compare([]))]
        await settle()
        slow.let.set()
        _, compared = await asyncio.gather(*tasks)
        assert (slow.asked, slow.most) == (2, 1)
        assert not compared.changes

    asyncio.run(story())


def test_what_cannot_be_foreseen_is_unknown_and_a_trial_says_so():
    async def story():
        forecaster, slow, posted = made()
        slow.fails = True
        slow.let.set()
        assert await forecaster.outlook(1) is None
        with pytest.raises(JctError, match="took over 60 s") as told:
            await forecaster.compare([])
        assert told.value.code is Code.BUSY
        assert posted == []

    asyncio.run(story())


def test_the_first_range_is_kept_once_and_its_parts_sum_to_its_middle():
    async def story():
        forecaster, slow, posted = made()
        slow.let.set()
        await forecaster.refresh()
        [event] = posted
        assert isinstance(event, Estimated)
        [estimate] = event.estimates
        assert estimate.moment is Moment.SUBMIT
        names = ("queueing_s", "startup_s", "training_s", "preemptions_s", "cleanup_s")
        assert sum(getattr(estimate, name) for name in names) == pytest.approx(estimate.mid_us / US)

    asyncio.run(story())


def test_a_change_makes_a_new_forecast():
    async def story():
        forecaster, slow, _ = made()
        slow.let.set()
        running = asyncio.create_task(forecaster.run())
        await settle()
        assert slow.asked == 0
        forecaster.after_commit([JOB])
        while slow.asked == 0:
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(story())
