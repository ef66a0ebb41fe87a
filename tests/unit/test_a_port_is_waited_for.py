"""A daemon that starts again gets the port that it had, though somebody still holds it for a moment."""

import errno
import socket
from collections.abc import Callable
from functools import partial

import pytest
import zmq

from scheduler.transport.ports import TRIES, taken


def held() -> tuple[socket.socket, int]:
    holder = socket.create_server(("127.0.0.1", 0))
    return holder, holder.getsockname()[1]


def letting_go(holder: socket.socket, after: int) -> tuple[Callable[[float], None], list[float]]:
    """A sleep in which the holder lets go after so many pauses, and the pauses."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == after:
            holder.close()

    return sleep, pauses


def test_a_port_that_somebody_holds_for_a_moment_is_waited_for() -> None:
    holder, port = held()
    sleep, pauses = letting_go(holder, after=3)
    with taken(partial(socket.create_server, ("127.0.0.1", port)), "REST", sleep) as listener:
        assert listener.getsockname()[1] == port
    assert len(pauses) == 3


def test_the_agents_port_is_waited_for_alike() -> None:
    holder, port = held()
    sleep, pauses = letting_go(holder, after=3)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        taken(partial(router.bind, f"tcp://127.0.0.1:{port}"), "agents", sleep)
    assert len(pauses) == 3


def test_a_port_that_another_keeps_is_named_in_the_end() -> None:
    holder, port = held()
    sleep, pauses = letting_go(holder, after=-1)
    for bind in (partial(socket.create_server, ("127.0.0.1", port)), partial(bound, port)):
        pauses.clear()
        with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1:7740: Address already in use") as caught:
            taken(bind, "127.0.0.1:7740", sleep)
        assert (caught.value.errno, len(pauses)) == (errno.EADDRINUSE, TRIES - 1)
    holder.close()


def bound(port: int) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(f"tcp://127.0.0.1:{port}")


def test_what_waiting_does_not_help_is_told_at_once() -> None:
    def bind() -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    pauses: list[float] = []
    with pytest.raises(OSError, match="cannot listen on 192\\.0\\.2\\.1:1: Cannot assign requested address"):
        taken(bind, "192.0.2.1:1", pauses.append)
    assert pauses == []
