"""However a member ends, all of its gang and all of its descendants are gone soon, and the cause is told."""

import os
import signal
import time

import msgspec
import pytest
from gang import Site, alive, curve, log, member_pids, plan

from scheduler.protocol.messages import Cause, Phase, Report
from worker.launcher import Launched

ONE, TWO, THREE = (0, 6), (0, 3, 6), (0, 2, 4, 6)


def training(it: Launched) -> bool:
    return len(it.reports) == it.size and (it.pilot.step or 0) >= 3


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_member_takes_the_gang_along_and_the_job_resumes(site: Site, victim: int) -> None:
    arguments = {"steps": 120}
    alone = site.launch(plan((0, 6)), site.spec(directory=None, arguments=arguments))
    alone.wait()
    first = site.launch(plan(THREE), site.spec(arguments=arguments))
    first.wait(training)
    first.save()
    first.wait(lambda it: it.pilot.saved is not None)
    os.kill(member_pids(first)[victim], signal.SIGKILL)
    killed_at = time.monotonic()
    first.wait()
    assert time.monotonic() - killed_at < 10
    causes = {member: report.cause for member, report in first.reports.items()}
    assert causes.pop(victim) is Cause.SIGNAL
    assert first.reports[victim].signal == signal.SIGKILL
    assert set(causes.values()) == {Cause.PEER_LOST}
    second = site.launch(plan(TWO), site.spec(arguments=arguments))
    second.wait()
    assert second.pilot.resumed_step == first.pilot.saved
    assert curve(first, second) == curve(alone)


def test_a_stopped_process_ends_the_attempt(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="awkward:slow"))
    launched.wait(training)
    os.kill(member_pids(launched)[0], signal.SIGSTOP)
    launched.wait(timeout_s=30)
    assert launched.reports[0].cause is Cause.STALLED
    assert "stopped" in launched.reports[0].message


def test_a_member_that_closes_its_line_to_the_shim_ends_as_the_users_fault(site: Site) -> None:
    launched = site.launch(plan(ONE), site.spec(entrypoint="awkward:closes_its_line"))
    launched.wait(timeout_s=30)
    assert launched.reports[0].cause is Cause.USER_EXCEPTION
    assert launched.reports[0].message


def test_b29_grace_zero_is_the_end_at_once(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="awkward:slow"))
    launched.wait(training)
    launched.stop(grace_s=0, why="cancelled by ann")
    launched.wait(timeout_s=10)
    assert all(
        "cancelled by ann" in report.message or report.cause is Cause.PEER_LOST for report in launched.reports.values()
    )
    assert Cause.KILLED in {report.cause for report in launched.reports.values()}


def test_b29_a_grace_that_is_over_ends_what_does_not_end(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="awkward:slow"))
    launched.wait(training)
    pids = member_pids(launched)
    os.kill(pids[1], signal.SIGSTOP)
    launched.stop(grace_s=0.5)
    launched.wait(timeout_s=10)
    assert launched.reports[1].cause is Cause.KILLED
    assert "grace" in launched.reports[1].message


def test_b18_no_descendant_survives(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="awkward:leaves_strays"))
    launched.wait()
    strays = [int(pid) for pid in (launched.folder / "strays").read_text().split()]
    assert strays
    assert not any(alive(pid) for pid in strays)


def test_the_shims_death_is_its_members_death(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="awkward:slow"))
    launched.wait(training)
    pids = member_pids(launched)
    assert launched.hello is not None
    os.kill(launched.hello.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids.values()):
        assert time.monotonic() < deadline
    with pytest.raises(ConnectionError):
        launched.wait()


def test_the_last_word_is_durable_for_an_agent_that_was_away(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 100}))
    launched.wait(training)
    launched.hang_up()
    assert launched.hello is not None
    deadline = time.monotonic() + 30
    while alive(launched.hello.pid):
        assert time.monotonic() < deadline
    for member in (0, 1):
        report = msgspec.json.decode((launched.folder / f"exit-{member}.json").read_bytes(), type=Report)
        assert (report.phase, report.cause, report.exit_code) == (Phase.GONE, Cause.FINISHED, 0), log(launched, member)
