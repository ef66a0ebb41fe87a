"""Connections that carry layers have the kernel's last priority; all others keep theirs."""

import os
import socket
from collections.abc import Iterator

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from worker.sockets import BULK_PRIORITY, connected, connected_since, lower_priority
from worker.transport import Groups


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            yield near, far


def priority(end: socket.socket) -> int:
    return end.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)


def test_only_the_named_connections_are_changed(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    assert {near.fileno(), far.fileno()} <= set(connected().values())
    lower_priority({near.fileno()})
    assert (priority(near), priority(far)) == (BULK_PRIORITY, 0)


def test_a_connection_with_the_descriptor_of_one_that_was_closed_is_new(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, _ = pair
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = connected()
        newer = socket.create_connection(server.getsockname())
        with newer:
            os.dup2(newer.fileno(), near.fileno())
        assert connected_since(before) == {near.fileno()}


def test_a_group_of_one_has_nothing_to_change() -> None:
    groups = Groups(HashStore(), "alone", 0, 1, "127.0.0.1", lambda: None, 5)
    groups.give_way()
    tensor = torch.ones(2)
    groups.world.sum(tensor)
    assert tensor.tolist() == [1, 1]
