"""The policy's process: one for many passes, killed when late, replaced when it dies, gone with the daemon."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import psutil
import pytest
from distribution import bring_policies
from samples import devices, job, snapshot

from policies.jct.priority import PriorityPolicy
from scheduler.pass_process import PassFailed, PassProcess

POLICIES = """
import os, time
from policies.jct.priority import PriorityPolicy
from policies.model.decision import Decisions, Wait

class Thorough(PriorityPolicy):
    def decide(self, snapshot, effort):
        while effort:
            time.sleep(1)
        return super().decide(snapshot, effort)

class Stuck:
    def decide(self, snapshot, effort):
        while True:
            time.sleep(1)

class Crashing(PriorityPolicy):
    def decide(self, snapshot, effort):
        if effort:
            os._exit(3)
        return super().decide(snapshot, effort)

class Telling:  # of every job, how it sees it
    def decide(self, snapshot, effort):
        waits = tuple(Wait(job.id, "Resources", f"{job.remaining_steps} {job.menu}") for job in snapshot.jobs)
        if effort and snapshot.now_us == 13:
            os._exit(3)
        return Decisions(snapshot.version, waits=waits)

class Talking:  # about something else
    def decide(self, snapshot, effort):
        return {"version": "no", "starts": [["job 1"]]}

class Mistaken:
    def decide(self, snapshot, effort):
        raise ZeroDivisionError("no devices to share")
"""
SNAPSHOT = snapshot([job(1), job(2)], devices())


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Policies that another distribution brings along."""
    (tmp_path / "others.py").write_text(POLICIES)
    names = ("Thorough", "Stuck", "Crashing", "Telling", "Talking", "Mistaken")
    bring_policies(tmp_path, monkeypatch, {name.lower(): f"others:{name}" for name in names})


@asynccontextmanager
async def passes(policy, limit_s=60.0):
    process = PassProcess(policy, limit_s)
    try:
        yield process
    finally:
        await process.close()


async def gone(pid):
    while psutil.pid_exists(pid):
        await asyncio.sleep(0.02)


def test_one_process_answers_pass_after_pass_as_the_policy_itself_does():
    async def story():
        async with passes("priority") as process:
            await process.start()
            first = process.pid
            for _ in range(3):
                answer = await process.decide(SNAPSHOT)
                assert answer.decisions == PriorityPolicy().decide(SNAPSHOT, 0)
                assert not answer.late
            assert process.pid == first
            assert first != os.getpid()
        await gone(first)

    asyncio.run(story())


def test_a_late_pass_is_killed_and_answered_quickly(others):
    async def story():
        async with passes("thorough", limit_s=8.0) as process:
            await process.start()
            first = process.pid
            answer = await process.decide(SNAPSHOT)
            assert answer.decisions.starts
            assert answer.late == "policy thorough took over 8 s; its quick answer was taken"
            assert process.pid != first
            await gone(first)

    asyncio.run(story())


def test_a_policy_that_dies_is_answered_by_a_new_process(others):
    async def story():
        async with passes("crashing") as process:
            answer = await process.decide(SNAPSHOT)
            assert answer.decisions.starts
            assert "ended without an answer" in answer.late
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            assert (await process.decide(SNAPSHOT)).decisions.starts

    asyncio.run(story())


def test_every_process_sees_the_jobs_as_they_are_though_each_is_shown_once(others):
    """Jobs come, change, leave and return; the process dies in the middle of a pass, and between two."""
    a, b, c = job(1), job(2), job(3)
    changed = replace(b, remaining_steps=7)
    passes_seen = [[a, b], [a, b, c], [a, changed, c], [c, changed], [c, b, a], [], [a]]

    async def story():
        async with passes("telling") as process:
            for moment, jobs in enumerate([*passes_seen, *passes_seen, *passes_seen]):
                answer = await process.decide(snapshot(jobs, devices(), now_us=moment))
                seen = [wait.text for wait in answer.decisions.waits]
                assert seen == [f"{job.remaining_steps} {job.menu}" for job in jobs]
                assert answer.late or moment != 13
                if moment == 9:
                    os.kill(process.pid, signal.SIGKILL)

    asyncio.run(story())


def test_a_policy_that_never_answers_fails_the_pass_and_leaves_no_process(others):
    async def story():
        async with passes("stuck", limit_s=2.0) as process:
            with pytest.raises(PassFailed, match="its quick answer did not come"):
                await process.decide(SNAPSHOT)
            assert process.pid is None

    asyncio.run(story())


def test_a_policy_that_raises_fails_the_pass_with_its_words(others, capfd):
    async def story():
        async with passes("mistaken") as process:
            with pytest.raises(PassFailed, match="ZeroDivisionError: no devices to share"):
                await process.decide(SNAPSHOT)
            first = process.pid
            with pytest.raises(PassFailed):
                await process.decide(SNAPSHOT)
            assert process.pid == first, "the process lives on"

    asyncio.run(story())
    assert "others.py" in capfd.readouterr().err, "the traceback is in the log"


def test_a_policy_that_answers_no_decisions_fails_the_pass_and_the_next_is_asked_alike(others):
    async def story():
        async with passes("talking") as process:
            for _ in range(2):
                with pytest.raises(PassFailed, match="policy talking answered what are no decisions"):
                    await process.decide(SNAPSHOT)

    asyncio.run(story())


def test_the_process_ends_with_the_daemon_however_that_ends():
    program = (
        "import asyncio\nfrom scheduler.pass_process import PassProcess\n"
        "async def main():\n    passes = PassProcess('priority')\n    await passes.start()\n"
        "    print(passes.pid, flush=True)\n    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as daemon:
        child = int(daemon.stdout.readline())
        daemon.kill()
    asyncio.run(asyncio.wait_for(gone(child), 60))
