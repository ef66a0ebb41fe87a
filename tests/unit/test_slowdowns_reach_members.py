"""What an agent knows of a device's slowdown reaches the training member on it, through its gang's shim."""

import os
import socket
from pathlib import Path

from gang import plan

from agent.shim_link import ShimLink
from scheduler.protocol import codec
from scheduler.protocol.messages import Message, Run, Slowdowns, Target
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.spec import AttemptSpec, JobSpec
from worker.control import Control
from worker.guard import Guard

HERE, ELSEWHERE = (
    Slowdown(device=id, ratio=ratio, low=1.1, high=3.0, confidence=0.8, source=Source.FOREST, contested=True)
    for id, ratio in (("cpu-0", 1.5), ("cpu-1", 2.5))
)
TOLD = Slowdowns(slowdowns=(ELSEWHERE, HERE))


def target(kind: str) -> Target:
    spec = AttemptSpec(kind=kind, nonce="n", job=JobSpec(name="t", entrypoint="a:b", workdir="/"))
    return Target(job=1, attempt=1, member=0, device="cpu-0", want=Run(), spec=spec, plan=plan((0, 1)))


def heard(line: socket.socket) -> list[Message]:
    return [codec.decode_to_member(body) for body in codec.Unframer().feed(line.recv(1 << 16))]


def guarded(kind: str, child: int) -> list[Message]:
    """What a member's line has after its shim has been told."""
    ours, theirs = socket.socketpair()
    guard = Guard(target(kind), child, ours)
    guard.tell(TOLD)
    guard.line.close()
    with theirs:
        return heard(theirs)


def test_a_shim_passes_slowdowns_on_to_a_training_member(child: int) -> None:
    assert guarded("train", child) == [target("train"), TOLD]


def test_a_program_that_is_no_pipeline_is_told_nothing_that_nobody_would_read(child: int) -> None:
    assert guarded("command", child) == [target("command")]


def test_a_member_knows_the_slowdown_of_its_own_device() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(codec.frame(TOLD) + codec.frame(target("train")))
    pid = os.fork()
    if pid == 0:  # a control ends its process when its line is closed
        os._exit(0 if Control(theirs).slowdown == HERE else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    ours.close()
    theirs.close()


def test_an_agent_keeps_nothing_for_a_shim_that_does_not_listen_yet(tmp_path: Path) -> None:
    """Newer ones will come, and a spawn must not wait behind old ones."""
    link = ShimLink(tmp_path, "n", lambda hello: None, lambda report: None)
    link.tell(TOLD)
    assert link._outbox.empty()
    link.greeted = True
    link.tell(TOLD)
    link.tell(TOLD)
    assert link._outbox.qsize() == 1
