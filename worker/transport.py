"""Messages between the ranks of one generation, over bare gloo groups: no default group, none outlives it."""

import datetime
import functools
import ipaddress
import socket
from collections.abc import Callable
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, TCPStore

from worker.errors import PeerLost
from worker.sockets import Watcher, connected, connected_since, lower_priority

# Nobody waits this long: the watcher frees ranks of a lost peer, the daemon stops ranks that stall.
TIMEOUT = datetime.timedelta(days=1)

THREADS = 1
"""Of a group, for its sums; messages need none."""


class Work(Protocol):
    def wait(self) -> object: ...


class Group:
    """Some ranks of a generation. Point-to-point sends and receives are posted and return at once.

    Every method, and `wait` on what they return through `finish`, raises PeerLost when a peer is gone.
    """

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self._group, self.rank, self.size = group, rank, size

    def send(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """The tensor must stay as it is until the work is finished."""
        try:
            work: Work = self._group.send([tensor], peer, tag)
        except RuntimeError as error:
            raise _lost(error) from None
        return work

    def receive(self, tensor: Tensor, peer: int, tag: int) -> Work:
        try:
            work: Work = self._group.recv([tensor], peer, tag)
        except RuntimeError as error:
            raise _lost(error) from None
        return work

    def release(self) -> Any:
        """Nobody here uses it any more. Its connections: they are hung up once nobody holds them."""
        connections, self._group = self._group, None
        return connections

    def sum(self, tensor: Tensor) -> None:
        """Sum over all ranks, in place. A group of one has nothing to do."""
        if self.size > 1:
            self.finish(self.begin_sum(tensor))

    def begin_sum(self, tensor: Tensor) -> Work:
        """As `sum`, complete when the work is finished. Several ranks' sums meet in the order they were begun in."""
        try:
            work: Work = self._group.allreduce([tensor], dist.AllreduceOptions())
        except RuntimeError as error:
            raise _lost(error) from None
        return work

    @staticmethod
    def finish(work: Work) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise _lost(error) from None


def _lost(error: RuntimeError) -> PeerLost:
    return PeerLost(f"a peer closed its connection: {str(error).splitlines()[0][:200]}")


class Groups:
    """All groups of one generation in this process, watched together."""

    def __init__(
        self, store: Any, prefix: str, rank: int, size: int, host: str, on_lost: Callable[[], None], timeout_s: float
    ) -> None:
        """Blocks until every rank has come, at most timeout_s. host: the store's; groups bind what routes to it."""
        self._timeout = datetime.timedelta(seconds=timeout_s)
        self._store, self._prefix, self._rank = store, prefix, rank
        self._host = host
        self._made: dict[tuple[str, tuple[int, ...]], Group] = {}
        before = connected()
        self.world = self._make("world", tuple(range(size)))
        self._before, self._on_lost = before, on_lost
        self._watcher: Watcher | None = None

    def among(self, name: str, ranks: tuple[int, ...]) -> Group:
        """The group of this name and these ranks, of which this is one. All of them call it, in the same order."""
        if (name, ranks) not in self._made:
            self._made[name, ranks] = self._make(f"{name}/{'-'.join(map(str, ranks))}", ranks)
        return self._made[name, ranks]

    def watch(self) -> None:
        """From here on a peer that hangs up is lost. Call it once, when all groups exist."""
        self._watcher = Watcher(connected_since(self._before), self._on_lost)

    def give_way(self) -> None:
        """What goes over these connections waits behind everything else that leaves this machine."""
        lower_priority(connected_since(self._before))

    def break_off(self) -> None:
        """Free every rank that waits for this one: it has failed and will not answer."""
        if self._watcher is not None:
            self._watcher.shut_down()

    def unwatch(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def release(self) -> list[Any]:
        """Nobody here uses them any more, or watches them. Their connections, as `Group.release`."""
        self.unwatch()
        return [group.release() for group in (self.world, *self._made.values())]

    @functools.cached_property
    def _device(self) -> Any:
        """Sockets and the thread that serves them; of all groups here, so that no group has a thread more."""
        return ProcessGroupGloo.create_device(hostname=local_address(self._host))

    def _make(self, name: str, ranks: tuple[int, ...]) -> Group:
        place = ranks.index(self._rank)
        if len(ranks) == 1:
            return Group(None, 0, 1)
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # the stubs lag behind
        options._timeout = self._timeout
        options._devices = [self._device]
        options._threads = THREADS
        store = PrefixStore(f"{self._prefix}/{name}", self._store)
        try:
            group = ProcessGroupGloo(store, place, len(ranks), options)
        except RuntimeError as error:
            raise PeerLost(f"could not join the group {name}: {str(error).splitlines()[0][:200]}") from None
        group._set_default_timeout(TIMEOUT)
        return Group(group, place, len(ranks))


def connect_store(address: str, timeout_s: float) -> Any:
    """A client of the generation's TCPStore at "host:port". Each thread needs its own: a wait blocks its client.

    Raises:
        PeerLost: nobody answers.
    """
    host, _, port = address.rpartition(":")
    try:
        return TCPStore(host, int(port), None, False, datetime.timedelta(seconds=timeout_s), wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        raise PeerLost(f"the store at {address} does not answer: {str(error).splitlines()[0][:200]}") from None


def local_address(host: str) -> str:
    """This machine's address on the interface that routes to `host`; host names like 127.0.1.1 never decide."""
    family, _, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    if ipaddress.ip_address(target[0]).is_loopback:
        return str(target[0])
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])
