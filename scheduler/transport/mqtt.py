"""Job, node and daemon states for an MQTT broker: events for others, never truth, and never in scheduling's way.

Topics: `jctd/v1/teams/TEAM/jobs/ID/state`, `jctd/v1/nodes/NODE/state`, `jctd/v1/daemon/state`, all retained and QoS 1;
names are percent-encoded, so that none builds a topic. The broker's last will says when the daemon is gone. What was
published is remembered in the database, by the number of the last event: after any break it goes on there. An ended
job's state expires with the broker after a week.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

import aiomqtt
import msgspec
import structlog
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from sqlalchemy.exc import DBAPIError

from scheduler.core.entities import Event, JobState
from scheduler.core.errors import Code, JctError
from scheduler.store.repository import Unavailable
from scheduler.transport.bodies import event_body, job_body, node_body
from scheduler.transport.feed import Feed

log = structlog.get_logger()

PREFIX = "jctd/v1"
DAEMON_TOPIC = f"{PREFIX}/daemon/state"
PAGE = 200
ANSWER_S = 10.0
RETRY_S, RETRY_CAP_S = 1.0, 60.0
EXPIRY_S = 7 * 86_400
LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class Broker:
    """Where to publish. tls: mqtts."""

    host: str
    port: int
    user: str | None
    password: str | None
    tls: bool

    @classmethod
    def parse(cls, url: str) -> "Broker":
        """`mqtt://user:password@host:1883`, or mqtts. Raises JctError BAD_SPEC, without the password."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or (port is None and ":" in parts.netloc[-6:]):
            raise JctError(Code.BAD_SPEC, "the broker's URL must be such as mqtt://user:password@host:1883")
        tls = parts.scheme == "mqtts"
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password else None
        return cls(parts.hostname, port or (8883 if tls else 1883), user, password, tls)


def job_topic(team: str, job: int) -> str:
    return f"{PREFIX}/teams/{quote(team, safe='')}/jobs/{job}/state"


def node_topic(node: str) -> str:
    return f"{PREFIX}/nodes/{quote(node, safe='')}/state"


class Publisher:
    """Publishes for the daemon's life. load and save: the number of the last event that the broker has acknowledged."""

    def __init__(
        self, broker: Broker, feed: Feed, load: Callable[[], int], save: Callable[[int], None]
    ) -> None:
        self._broker, self._feed, self._state = broker, feed, feed.state
        self._load, self._save = load, save

    async def run(self) -> None:
        """A broker that is away or slow is tried again with longer and longer pauses; nobody waits for it."""
        pause_s = RETRY_S
        while True:
            try:
                async with self._connection() as client:
                    pause_s = RETRY_S
                    log.info("publishing", broker=f"{self._broker.host}:{self._broker.port}")
                    await self._publish_all(client)
            except (aiomqtt.MqttError, OSError, TimeoutError) as error:
                log.warning("the broker does not take events; trying again", error=str(error)[:200], in_s=pause_s)
            except (Unavailable, DBAPIError) as error:
                log.warning("the database does not take or tell events now; trying again", error=str(error)[:200])
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(RETRY_CAP_S, pause_s * 2)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[aiomqtt.Client]:
        broker = self._broker
        will = aiomqtt.Will(DAEMON_TOPIC, self._daemon("offline"), qos=1, retain=True)
        client = aiomqtt.Client(
            broker.host, broker.port, username=broker.user, password=broker.password, will=will,
            tls_params=aiomqtt.TLSParameters() if broker.tls else None, timeout=ANSWER_S,
            protocol=aiomqtt.ProtocolVersion.V5, keepalive=30,
        )  # fmt: skip
        async with client:
            try:
                yield client
            except asyncio.CancelledError:
                with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
                    await client.publish(DAEMON_TOPIC, self._daemon("stopped"), qos=1, retain=True, timeout=1.0)
                raise

    async def _publish_all(self, client: aiomqtt.Client) -> None:
        """Everything as it is now, then what happens."""
        await client.publish(DAEMON_TOPIC, self._daemon("online"), qos=1, retain=True)
        for node in list(self._state.nodes):
            await self._publish_node(client, node, None)
        for id, job in list(self._state.jobs.items()):
            if job.state is not JobState.DONE:
                await self._publish_job(client, id, None)
        after = await asyncio.to_thread(self._load)
        while True:
            found = await self._feed.after(after, PAGE, LOOK_S)
            if not found:
                continue
            for event in _latest(found):
                if event.job is not None:
                    await self._publish_job(client, event.job, event)
                elif event.node is not None:
                    await self._publish_node(client, event.node, event)
            after = found[-1].seq
            await asyncio.to_thread(self._save, after)

    async def _publish_job(self, client: aiomqtt.Client, id: int, event: Event | None) -> None:
        story = await self._feed.story(id)
        if story is None:
            return
        job = story.job
        body = {**job_body(self._state, story), **event_body(self._state, event)}
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if job.state is JobState.DONE:
            properties.MessageExpiryInterval = EXPIRY_S
        topic = job_topic(job.spec.team, id)
        await client.publish(topic, msgspec.json.encode(body), qos=1, retain=True, properties=properties)

    async def _publish_node(self, client: aiomqtt.Client, id: str, event: Event | None) -> None:
        body = {**node_body(self._state, id), **event_body(self._state, event)}
        await client.publish(node_topic(id), msgspec.json.encode(body), qos=1, retain=True)

    def _daemon(self, state: str) -> bytes:
        return msgspec.json.encode({"state": state, "epoch": self._state.epoch})


def _latest(events: list[Event]) -> list[Event]:
    """Of each job and node the last one, in order: states are whole values, so earlier ones tell nothing more."""
    last = {(event.job, event.node if event.job is None else None): event for event in events}
    return sorted(last.values(), key=lambda event: event.seq)


def acl(readers: list[tuple[str, str | None]], daemon: str = "jctd") -> str:
    """A Mosquitto ACL file. readers: broker users with their team, None for those who may read everything."""
    lines = ["# Made by `jct admin mqtt-acl`. Nothing is allowed that is not named here.", f"user {daemon}",
             f"topic readwrite {PREFIX}/#", ""]  # fmt: skip
    rights: dict[str, dict[str, None]] = {}
    for user, team in readers:
        topic = f"{PREFIX}/#" if team is None else f"{PREFIX}/teams/{quote(team, safe='')}/#"
        rights.setdefault(user, {DAEMON_TOPIC: None})[topic] = None
    for user, topics in rights.items():
        if user != daemon:
            lines += [f"user {user}", *(f"topic read {topic}" for topic in topics), ""]
    return "\n".join(lines)
