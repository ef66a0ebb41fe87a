"""A shim must not end because its agent did."""

import socket

from scheduler.protocol.messages import Phase, Report
from worker.channel import Channel


def test_what_an_agent_that_has_gone_was_not_sent_is_dropped_with_its_channel() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.close()
    channel.offer(0, Report(job=1, attempt=1, member=0, seq=1, phase=Phase.TRAINING))
    assert channel.wants_to_write
    channel.close()
    assert not channel.wants_to_write
    channel.flush()
