"""A small cluster behind a real server on loopback."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from small_cluster import SmallCluster

from scheduler.api.app import create_app


class Living(SmallCluster):
    """speed_s: time that passes with every look at the clock, so that what waits sees the world move."""

    speed_s = 0.0

    def now_us(self) -> int:
        if self.speed_s:
            self.advance(self.speed_s, min(self.speed_s, 0.25))
        return super().now_us()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[Living, str]]:
    """The cluster and its URL."""
    cluster = Living(folder)
    app = create_app(cluster, cluster.tokens, cluster.audit, cluster.vault, "0")
    server = _Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.listening.wait(30)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield cluster, f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
    cluster.close()
