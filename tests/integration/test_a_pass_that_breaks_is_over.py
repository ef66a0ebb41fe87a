"""However a scheduling pass fails, the daemon goes on, says so in its story, and asks again when something changes."""

import asyncio
from pathlib import Path

from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions
from scheduler.core.events import Submit
from scheduler.core.settings import US, CoreSettings
from scheduler.driver import Driver
from scheduler.jobfile import parse_document
from scheduler.pass_process import Answer
from scheduler.store.repository import Repository

JOB = parse_document({"name": "gpt", "entrypoint": "m:f", "workdir": "/w"})
PATIENCE_S = 30.0


class Breaking:
    """The first pass raises what nobody has thought of. over: tells of each pass."""

    def __init__(self) -> None:
        self.asked = 0
        self.over: asyncio.Queue[int] = asyncio.Queue()

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def decide(self, snapshot: ClusterSnapshot) -> Answer:
        self.asked += 1
        self.over.put_nowait(self.asked)
        if self.asked == 1:
            raise RuntimeError("nobody thought of this")
        return Answer(Decisions(snapshot.version))


def test_an_error_that_nobody_thought_of_costs_one_pass(tmp_path: Path) -> None:
    async def story(repository: Repository) -> list[str]:
        passes, now = Breaking(), iter(range(US, 10**15, 1_000))
        driver = Driver(repository.load(), repository, passes, CoreSettings(), lambda: next(now))
        running = asyncio.create_task(driver.run())
        for number in (1, 2):
            await driver.ask(lambda request: Submit(request=request, spec=JOB, spec_key="k", user="eva"))
            assert await asyncio.wait_for(passes.over.get(), PATIENCE_S) == number
            while not driver.settled:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [event.message for event in repository.history.events(None, 0, 100) if event.kind == "PassFailed"]

    repository = Repository.open(f"sqlite:///{tmp_path}/jctd.db")
    assert asyncio.run(story(repository)) == ["nobody thought of this"]
    repository.close()
