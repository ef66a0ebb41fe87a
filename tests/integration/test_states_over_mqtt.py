"""What subscribers of a real Mosquitto see: true states, only their team's, nothing lost when the broker goes away."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiomqtt
import pytest
from services import missing_service
from small_cluster import SmallCluster

from scheduler.core.errors import JctError
from scheduler.store.repository import Unavailable
from scheduler.transport import mqtt
from scheduler.transport.feed import Feed
from scheduler.transport.mqtt import DAEMON_TOPIC, Broker, Publisher, acl, job_topic, node_topic

PATIENCE_S = 30.0
PASSWORDS = {"jctd": "d-secret", "eva": "e-secret", "rob": "r-secret"}


class Mosquitto:
    """A broker with passwords and the ACL file that `jct admin mqtt-acl` makes."""

    def __init__(self, folder: Path, program: str) -> None:
        self._folder, self._program = folder, program
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        passwords = folder / "passwords"
        for number, (user, secret) in enumerate(PASSWORDS.items()):
            make = ["mosquitto_passwd", "-b", *(["-c"] if number == 0 else []), str(passwords), user, secret]
            subprocess.run(make, check=True, capture_output=True)
        (folder / "acl").write_text(acl([("eva", "nlp"), ("rob", "vi/+#")]))
        for file in ("passwords", "acl"):
            (folder / file).chmod(0o600)
        owner = f"user {'root' if os.geteuid() == 0 else ''}\n" if os.geteuid() == 0 else ""
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous false\n{owner}"
            f"password_file {passwords}\nacl_file {folder / 'acl'}\npersistence true\npersistence_location {folder}/\n"
        )
        self.start()

    def start(self) -> None:
        command = [self._program, "-c", str(self._folder / "mosquitto.conf")]
        with (self._folder / "log").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def url(self, user: str = "jctd") -> str:
        return f"mqtt://{user}:{PASSWORDS[user]}@127.0.0.1:{self.port}"


@pytest.fixture
def broker(tmp_path):
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        missing_service("Mosquitto is not installed; scripts/install-debian-packages installs it")
    folder = tmp_path / "mosquitto"
    folder.mkdir(mode=0o700)
    found = Mosquitto(folder, program)
    yield found
    found.stop()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    for name, value in (("RETRY_S", 0.05), ("RETRY_CAP_S", 0.2), ("LOOK_S", 0.05)):
        monkeypatch.setattr(mqtt, name, value)
    small = SmallCluster(tmp_path)
    yield small
    small.close()


def publisher(cluster: SmallCluster, url: str) -> Publisher:
    store = cluster.repository
    feed = Feed(cluster.state, cluster.ring, store.history)
    return Publisher(Broker.parse(url), feed, partial(store.remembered, "mqtt"), partial(store.remember, "mqtt"))


class Reader:
    """Keeps the last value of every topic that it may read."""

    def __init__(self, broker: Mosquitto, user: str) -> None:
        self._broker, self._user = broker, user
        self.seen: dict[str, dict] = {}

    async def run(self) -> None:
        while True:
            with contextlib.suppress(aiomqtt.MqttError):
                secret, port = PASSWORDS[self._user], self._broker.port
                async with aiomqtt.Client("127.0.0.1", port, username=self._user, password=secret) as client:
                    await client.subscribe("#", qos=1)
                    async for message in client.messages:
                        self.seen[str(message.topic)] = json.loads(message.payload)
            await asyncio.sleep(0.05)


async def until(what: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not what():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(*works):
    tasks = [asyncio.create_task(work.run()) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def submit(cluster: SmallCluster, team: str, **fields) -> int:
    from scheduler.jobfile import parse_document

    job = {"name": "j", "entrypoint": "m:f", "workdir": "/w", "team": team, "gpus": 1, **fields}
    return await cluster.submit(parse_document(job), "k", "eva", None)


def test_states_are_retained_true_and_only_for_the_own_team(cluster, broker):
    async def scene() -> None:
        id = await submit(cluster, "nlp", work={"total": "5 steps"})
        other = await submit(cluster, "vi/+#", work={"total": "100000 steps"})
        eva, rob = Reader(broker, "eva"), Reader(broker, "rob")
        async with running(publisher(cluster, broker.url()), eva):
            await until(lambda: eva.seen.get(job_topic("nlp", id), {}).get("state") == "PENDING")
            cluster.advance(20)
            await until(lambda: eva.seen[job_topic("nlp", id)]["state"] == "COMPLETED")
            assert eva.seen[DAEMON_TOPIC] == {"state": "online", "epoch": 1}
            async with running(rob):  # comes late: all is retained
                await until(lambda: rob.seen.get(job_topic("vi/+#", other), {}).get("state") == "RUNNING")
            assert {topic for topic in eva.seen if "/teams/" in topic} == {job_topic("nlp", id)}
            assert {topic for topic in rob.seen if "/teams/" in topic} == {job_topic("vi/+#", other)}
            assert node_topic("n0") not in eva.seen
        late = Reader(broker, "eva")
        async with running(late):
            await until(lambda: late.seen.get(DAEMON_TOPIC, {}).get("state") == "stopped")

    asyncio.run(scene())


def test_a_broker_that_was_away_gets_everything_that_it_missed(cluster, broker):
    async def scene() -> None:
        eva = Reader(broker, "eva")
        feed = publisher(cluster, broker.url())
        async with running(feed, eva):
            await until(lambda: DAEMON_TOPIC in eva.seen)
            broker.stop()
            id = await submit(cluster, "nlp", work={"total": "5 steps"})  # nobody waits for the broker
            cluster.advance(20)
            assert cluster.state.jobs[id].result == "COMPLETED"
            broker.start()
            await until(lambda: eva.seen.get(job_topic("nlp", id), {}).get("state") == "COMPLETED")
            await until(lambda: cluster.repository.remembered("mqtt") == cluster.ring.newest)

    asyncio.run(scene())


def test_a_daemon_that_dies_is_said_to_be_offline(cluster, broker):
    async def scene() -> None:
        eva = Reader(broker, "eva")
        feed = publisher(cluster, broker.url())
        async with running(eva), feed._connection() as client:
            await client.publish(DAEMON_TOPIC, b'{"state": "online"}', qos=1, retain=True)
            await until(lambda: eva.seen.get(DAEMON_TOPIC, {}).get("state") == "online")
            client._client._sock_close()  # as if the process had been killed
            await until(lambda: eva.seen[DAEMON_TOPIC]["state"] == "offline")

    with contextlib.suppress(aiomqtt.MqttError):
        asyncio.run(scene())


def test_nobody_reads_without_a_password_or_writes_but_the_daemon(broker):
    async def scene() -> None:
        with pytest.raises(aiomqtt.MqttError):
            async with aiomqtt.Client("127.0.0.1", broker.port):
                pass
        eva = Reader(broker, "eva")
        async with running(eva), aiomqtt.Client(
            "127.0.0.1", broker.port, username="eva", password=PASSWORDS["eva"]
        ) as client:  # fmt: skip
            await client.publish(DAEMON_TOPIC, b'{"state": "forged"}', qos=1, retain=True)
            async with aiomqtt.Client(
                "127.0.0.1", broker.port, username="jctd", password=PASSWORDS["jctd"]
            ) as daemon:  # fmt: skip
                await daemon.publish(DAEMON_TOPIC, b'{"state": "true"}', qos=1, retain=True)
            await until(lambda: DAEMON_TOPIC in eva.seen)
            assert eva.seen[DAEMON_TOPIC]["state"] == "true"

    async def wait_for_broker() -> None:
        for _ in range(500):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", broker.port)).close()
                return
            await asyncio.sleep(0.02)

    asyncio.run(wait_for_broker())
    asyncio.run(scene())


@pytest.mark.parametrize("url", ["", "http://x", "mqtt://", "mqtt://u:hunter2@h:port", "mqtt://u:hunter2@h:99999"])
def test_other_urls_are_refused_without_the_password(url):
    with pytest.raises(JctError) as caught:
        Broker.parse(url)
    assert "hunter2" not in str(caught.value)


def test_b45_names_build_no_topic():
    assert job_topic("a/+#", 3) == "jctd/v1/teams/a%2F%2B%23/jobs/3/state"

def test_a_blocked_database_ends_no_publisher(cluster, monkeypatch):
    """No broker is needed for it: what it says goes nowhere."""
    saved: list[int] = []

    class Nowhere:
        async def publish(self, *_: object, **__: object) -> None: ...

    @contextlib.asynccontextmanager
    async def connection(self):
        yield Nowhere()

    def save(seq: int) -> None:
        saved.append(seq)
        if len(saved) == 1:
            raise Unavailable("database is locked")

    monkeypatch.setattr(Publisher, "_connection", connection)
    feed = Feed(cluster.state, cluster.ring, cluster.repository.history)

    async def scene() -> None:
        async with running(Publisher(Broker.parse("mqtt://h"), feed, lambda: 0, save)):
            await until(lambda: len(saved) == 2)

    asyncio.run(scene())
    assert saved == [cluster.ring.newest] * 2
