"""What the checks of a node find, and that none of them can hold up or outlive its agent."""

import asyncio
import shutil
import threading
import time
from collections import namedtuple

import pytest

from agent import health
from agent.health import HealthWatch, nearly_full
from agent.health_check import BadHealthCheck, HealthCheck
from scheduler.protocol.messages import Health

PATIENCE_S = 30.0


@pytest.fixture
def check(tmp_path):
    """Makes a check of a shell script's text."""

    def make(text: str, timeout_s: float = PATIENCE_S) -> HealthCheck:
        program = tmp_path / "check"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o700)
        return HealthCheck(program, timeout_s, "n0", tmp_path)

    return make


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo all is well", ""),
        ("echo; echo 'fan 3 is dead'; echo more; exit 1", "fan 3 is dead"),
        ("printf '\\033[2Jhot\\377' >&2; exit 2", "[2Jhot\N{REPLACEMENT CHARACTER}"),
        ("exit 3", "the health check exited with code 3 and said nothing"),
        ("kill -SEGV $$", "the health check was ended by SIGSEGV"),
        ("head -c 5000000 /dev/zero | tr '\\0' x; exit 1", "x" * 200),
        ('test "$JCT_NODE" = n0 && test -z "$SECRET"', ""),
        ("sleep 1000 & exit 1", "the health check exited with code 1 and said nothing"),
    ],
)
def test_a_program_that_fails_gives_its_first_line_as_the_reason(check, monkeypatch, text, reason):
    monkeypatch.setenv("SECRET", "hunter2")
    asked = check(text)
    assert asked.ask() == reason
    asked.end()


def test_a_late_program_is_killed_with_its_children_and_grandchildren(check):
    late = check("setsid sleep 1000 & (sleep 1000 &) ; echo fine; sleep 1000", timeout_s=0.5)
    assert late.ask() == "the health check took longer than 0.5 s"
    assert late._processes.pids() == []


def test_what_an_agent_that_was_killed_left_running_is_ended_by_the_next(check):
    first = check("sleep 1000 & exit 0")
    assert first.ask() == ""
    assert len(first._processes.pids()) == 1
    check("exit 0").ask()
    deadline = time.monotonic() + PATIENCE_S
    while first._processes.pids():  # the kernel takes a moment to end what was killed
        assert time.monotonic() < deadline, "never ended"


def test_what_is_no_program_is_refused_and_one_that_vanished_is_a_reason(check, tmp_path):
    with pytest.raises(BadHealthCheck, match="no program"):
        HealthCheck(tmp_path / "none", 1.0, "n0", tmp_path)
    vanished = check("exit 0")
    vanished.program.unlink()
    assert vanished.ask() == "the health check cannot be started: No such file or directory"


def test_a_nearly_full_disk_is_a_reason(tmp_path, monkeypatch):
    Usage = namedtuple("Usage", "total used free")
    for total, free, full in ((2**40, 2**29, True), (2**40, 2**31, False), (2**26, 2**24, False), (2**26, 2**20, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, total=total, free=free: Usage(total, total - free, free))
        assert bool(nearly_full(tmp_path)) is full


def test_checks_that_hang_are_told_and_hold_up_nothing(tmp_path, monkeypatch):
    let_go, told = threading.Event(), []

    def hang(*_: object) -> Health:
        let_go.wait(PATIENCE_S)
        return Health(node="late")

    monkeypatch.setattr(health, "look", hang)
    monkeypatch.setattr(health, "LOOK_S", 0.0)

    async def scene() -> None:
        watch = asyncio.create_task(HealthWatch(tmp_path, None, 0.01, told.append).run())
        while not told:
            await asyncio.sleep(0.01)
        assert told == [Health(node="the health checks hang")]
        let_go.set()
        while told[-1].node != "late":
            await asyncio.sleep(0.01)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    asyncio.run(scene())


def test_a_check_that_fails_by_itself_is_a_reason_too(tmp_path, monkeypatch):
    monkeypatch.setattr(health, "nearly_full", lambda folder: 1 / 0)
    assert "ZeroDivisionError" in health.look(tmp_path, None).node
