"""Which addresses a webhook may reach.

A name is resolved here, and the connection made to what was found and allowed, so that a name which answers differently
the second time leads nowhere else.
"""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Unreachable(Exception):
    """The name cannot be resolved, or leads where webhooks may not go."""


def forbidden(address: Address, of_team: bool) -> str:
    """Why a webhook may not go there, empty where it may. of_team: made by a team for itself, not by an admin."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return "is the daemon's own host, where only webhooks of admins may go" if of_team else ""
    if address.is_link_local or address.is_multicast or address.is_unspecified or address.is_reserved:
        return "is no address of an ordinary host"
    return ""


async def resolve(host: str, port: int) -> list[Address]:
    """Raises Unreachable. A resolver that hangs holds up a thread of its own, and nothing else."""
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{host} cannot be resolved: {getattr(error, 'strerror', None) or error}") from None
    return list(dict.fromkeys(ipaddress.ip_address(str(item[4][0]).partition("%")[0]) for item in found))


async def in_thread(work: Callable[[], Any]) -> Any:
    """In a daemon thread of its own: neither the pool of others nor the end of the process waits for it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="resolver", daemon=True).start()
    return await answer
