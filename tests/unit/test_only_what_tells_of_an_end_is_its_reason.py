"""A remark on how training went is no reason of its end; what tells of lost work stays."""

import os
import signal
import socket
from collections.abc import Callable

import pytest
from gang import plan

from scheduler.protocol import codec
from scheduler.protocol.messages import Cause, Phase, Report, Run, Target
from scheduler.protocol.spec import AttemptSpec, JobSpec
from worker.control import Control
from worker.errors import Ended
from worker.guard import STOPPED_LIMIT_S, Guard

SPEC = AttemptSpec(kind="train", nonce="n", job=JobSpec(name="t", entrypoint="a:b", workdir="/"))
TARGET = Target(job=1, attempt=1, member=0, device="cpu-0", want=Run(), spec=SPEC, plan=plan((0, 1)))


def last_word(speak: Callable[[Control], None], end: Ended) -> Report:
    """Of a member that says this and ends so."""
    ours, theirs = socket.socketpair()
    ours.sendall(codec.frame(TARGET))
    pid = os.fork()
    if pid == 0:  # a control ends its process when its line is closed
        control = Control(theirs)
        speak(control)
        control.last_word(end)
        os._exit(0)
    theirs.close()
    os.waitpid(pid, 0)
    bodies = codec.Unframer().feed(ours.recv(1 << 16))
    ours.close()
    return codec.decode_report(bodies[-1])


@pytest.mark.parametrize("cause", [Cause.FINISHED, Cause.STOPPED])
def test_a_remark_on_step_times_is_no_reason(cause: Cause) -> None:
    report = last_word(lambda control: control.note("step times vary by 90%"), Ended(cause))
    assert (report.cause, report.message) == (cause, "")


def test_work_that_was_lost_is_told_to_the_end_and_no_later_remark_hides_it() -> None:
    def speak(control: Control) -> None:
        control.note("20 steps lost", of_loss=True)
        control.note("step times vary by 90%")

    assert last_word(speak, Ended(Cause.FINISHED)).message == "20 steps lost"
    assert last_word(speak, Ended(Cause.STOPPED, "asked to")).message == "asked to"


def test_a_member_that_is_killed_ends_for_what_its_shim_saw(child: int) -> None:
    ours, theirs = socket.socketpair()
    guard = Guard(TARGET, child, ours)
    remark = Report(job=1, attempt=1, member=0, seq=2, phase=Phase.TRAINING, message="step times vary by 90%")
    theirs.sendall(codec.frame(remark))
    guard.read()
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
    guard.tick(0.0)
    guard.tick(STOPPED_LIMIT_S)
    guard.ended(signal.SIGKILL)
    assert guard.report.cause is Cause.STALLED
    assert "was stopped (SIGSTOP)" in guard.report.message
    theirs.close()
