"""The shim's book on one member: a stop stays a stop, graces only shrink, a stillborn member has a cause."""

import signal
import socket

import msgspec
import pytest
from gang import plan

from scheduler.protocol.codec import Unframer, decode_target
from scheduler.protocol.messages import Cause, Phase, Run, Stop, Target
from scheduler.protocol.spec import AttemptSpec, JobSpec
from worker import processes
from worker.guard import OOM_LOOK_S, Guard

SPEC = AttemptSpec(kind="train", nonce="n", job=JobSpec(name="t", entrypoint="a:b", workdir="/", signal="SIGCONT"))


def target(want: Run | Stop) -> Target:
    return Target(job=1, attempt=1, member=0, device="cpu-0", want=want, spec=SPEC, plan=plan((0, 1)))


def heard(line: socket.socket) -> Target:
    return decode_target(Unframer().feed(line.recv(1 << 16))[-1])


def test_a_run_after_a_stop_changes_nothing(child: int) -> None:
    ours, theirs = socket.socketpair()
    guard = Guard(target(Run()), child, ours)
    guard.take(target(Stop(grace_s=60, why="preempted")), 100.0)
    guard.take(msgspec.structs.replace(target(Run()), save_no=3), 101.0)
    assert heard(theirs).want == Stop(grace_s=60, why="preempted")
    assert guard.next_deadline_s() == 160.0
    guard.line.close()
    theirs.close()


def test_a_grace_can_shrink_but_never_grow(child: int) -> None:
    ours, theirs = socket.socketpair()
    guard = Guard(target(Run()), child, ours)
    guard.take(target(Stop(grace_s=60, why="a")), 100.0)
    guard.take(target(Stop(grace_s=300, why="b")), 101.0)
    assert guard.next_deadline_s() == 160.0
    guard.take(target(Stop(grace_s=5, why="c")), 102.0)
    assert guard.next_deadline_s() == 107.0
    guard.line.close()
    theirs.close()


def test_a_member_that_could_not_be_started_says_why() -> None:
    report = Guard.stillborn(target(Run()), "no process could be started").report
    assert (report.phase, report.cause, report.exit_code) == (Phase.EXITED, Cause.START_FAILED, None)
    assert "no process" in report.message


@pytest.mark.parametrize(
    ("looks", "at_its_end", "status", "cause"),
    [
        ([], 6, signal.SIGKILL, Cause.OUT_OF_MEMORY), ([6], 6, signal.SIGKILL, Cause.OUT_OF_MEMORY),
        ([], 5, signal.SIGKILL, Cause.SIGNAL), ([6, 6], 6, signal.SIGKILL, Cause.SIGNAL),
        ([], 6, signal.SIGTERM, Cause.SIGNAL), ([], 6, 9 << 8, Cause.USER_EXCEPTION),
    ],
)  # fmt: skip
def test_b42_who_dies_when_the_kernel_kills_for_want_of_memory_was_killed_for_that(
    child: int, monkeypatch: pytest.MonkeyPatch, looks: list[int], at_its_end: int, status: int, cause: Cause
) -> None:
    """looks: how often it has killed, at looks two seconds apart; 5 times when the member began."""
    kills = iter([5, *looks, at_its_end, at_its_end])
    monkeypatch.setattr(processes, "oom_kills", lambda: next(kills))
    ours, theirs = socket.socketpair()
    guard = Guard(target(Run()), child, ours)
    for number, _ in enumerate(looks):
        guard.tick(100.0 + OOM_LOOK_S * number)
    guard.ended(status)
    assert guard.report.cause is cause
    theirs.close()


def test_b42_who_is_killed_by_us_was_not_killed_by_the_kernel(child: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "oom_kills", iter(range(100)).__next__)
    ours, theirs = socket.socketpair()
    guard = Guard(target(Run()), child, ours)
    guard.take(target(Stop(grace_s=0, why="cancelled")), 100.0)
    guard.ended(signal.SIGKILL)
    assert guard.report.cause is Cause.KILLED
    theirs.close()
