"""Delivers events to webhooks, at least once and in order, each from its own cursor: one that is down, slow or answers
garbage holds up itself alone.

A delivery is signed as https://www.standardwebhooks.com says: webhook-id is the same however often an event is sent,
webhook-signature is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
"""

import asyncio
import base64
import hashlib
import hmac
import random
import ssl
from collections.abc import Callable

import httpx
import msgspec
import structlog

from scheduler.core.entities import Event
from scheduler.core.errors import JctError
from scheduler.core.events import Remark
from scheduler.core.settings import US
from scheduler.store.repository import Unavailable
from scheduler.store.webhooks import Webhook, Webhooks
from scheduler.transport.bodies import Body, event_body, job_body, node_body
from scheduler.transport.feed import Feed
from scheduler.transport.reach import Address, Unreachable, forbidden, resolve
from scheduler.version import VERSION

log = structlog.get_logger()

PAGE = 100
LOOK_S = 1.0
WAIT_S = 5.0
ANSWER_S = 10.0
RETRY_S, RETRY_CAP_S, GIVEN_UP_S = 1.0, 600.0, 3_600.0
GIVE_UP_S = 86_400.0


class Deliverer:
    """Delivers for the daemon's life. remark: puts a line into the story."""

    def __init__(
        self, webhooks: Webhooks, feed: Feed, remark: Callable[[Remark], None], now_us: Callable[[], int],
        forbidden: Callable[[Address, bool], str] = forbidden,
    ) -> None:  # fmt: skip
        self._webhooks, self._feed, self._remark, self._now_us = webhooks, feed, remark, now_us
        self._forbidden = forbidden

    async def run(self) -> None:
        """A task a webhook; one that fails by itself is begun again. How far they have come is saved once a second."""
        tasks: dict[int, asyncio.Task[None]] = {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        context = ssl.create_default_context()
        async with httpx.AsyncClient(limits=limits, timeout=ANSWER_S, trust_env=False, verify=context) as client:
            try:
                while True:
                    wanted = [webhook.id for webhook in self._webhooks.all()]
                    for id in [id for id, task in tasks.items() if task.done() or id not in wanted]:
                        _end(tasks.pop(id))
                    for id in wanted:
                        if id not in tasks:
                            tasks[id] = asyncio.create_task(self._serve(client, id))
                    await asyncio.sleep(LOOK_S)
                    await self._save()
            finally:
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _save(self) -> None:
        try:
            await asyncio.to_thread(self._webhooks.save)
        except Unavailable as error:
            log.warning("the database does not take the webhooks' cursors; trying again", error=error.message)

    async def _serve(self, client: httpx.AsyncClient, id: int) -> None:
        """Until it is removed."""
        pause_s = RETRY_S
        while (webhook := self._webhooks.find(id)) is not None:
            if not (why := await self._deliver_some(client, webhook)):
                pause_s = RETRY_S
                continue
            cap_s = await self._failed(id, why)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(cap_s, pause_s * 2)

    async def _deliver_some(self, client: httpx.AsyncClient, webhook: Webhook) -> str:
        """Why it went no further, empty where it did."""
        failing_us = webhook.failing_us
        for event in await self._feed.after(webhook.cursor, PAGE, WAIT_S):
            body = await self._body(webhook, event)
            if body is not None:
                if why := await self._post(client, webhook, event, msgspec.json.encode(body)):
                    return why
                failing_us = None
                self._webhooks.trouble.pop(webhook.id, None)
            self._webhooks.move(webhook.id, event.seq, failing_us)
        await asyncio.sleep(0)  # one that catches up with what is none of its own lets others have their turn
        return ""

    async def _failed(self, id: int, why: str) -> float:
        """Remember since when; after a day give up what is a day old. Returns the longest pause that makes sense."""
        webhook, now = self._webhooks.find(id), self._now_us()
        if webhook is None:
            return RETRY_CAP_S
        if id not in self._webhooks.trouble:
            log.warning("a webhook does not take events; trying again", webhook=id, why=why)
        self._webhooks.trouble[id] = why
        since, limit = webhook.failing_us or now, now - round(GIVE_UP_S * US)
        cursor = webhook.cursor
        if since <= limit:
            cursor, lost = await self._skip(webhook, limit)
            if lost:
                text = f"webhook {id} ({webhook.name}) has failed for a day; events given up: {lost}; {why}"
                self._remark(Remark(kind="WebhookGaveUp", message=text, data={"webhook": id, "events": lost}))
        self._webhooks.move(id, cursor, since)
        return GIVEN_UP_S if since <= limit else RETRY_CAP_S

    async def _skip(self, webhook: Webhook, limit_us: int) -> tuple[int, int]:
        """The cursor behind all that is older than the limit, and how many of these it would have got."""
        cursor, lost = webhook.cursor, 0
        while found := await self._feed.after(cursor, PAGE, 0.0):
            for event in found:
                if event.time_us > limit_us:
                    return cursor, lost
                lost += await self._body(webhook, event) is not None
                cursor = event.seq
        return cursor, lost

    async def _body(self, webhook: Webhook, event: Event) -> Body | None:
        """None where the event is none of the webhook's."""
        group = "job" if event.job is not None else "node" if event.node is not None else "daemon"
        if group not in webhook.events and event.kind not in webhook.events:
            return None
        state = self._feed.state
        about: Body = {}
        if event.job is not None:
            story = await self._feed.story(event.job)
            if story is None or webhook.team not in (None, story.job.spec.team):
                return None
            about = {**job_body(state, story), "name": story.job.spec.name, "team": story.job.spec.team,
                     "user": story.job.user}  # fmt: skip
        elif webhook.team is not None:
            return None
        elif event.node is not None:
            about = node_body(state, event.node)
        return {
            "id": event_id(event), "kind": group, **event_body(state, event), "actor": event.actor,
            "message": event.message, **about,
        }  # fmt: skip

    async def _post(self, client: httpx.AsyncClient, webhook: Webhook, event: Event, body: bytes) -> str:
        """Why it was not delivered, empty where it was. Nothing of the answer but its status is read."""
        try:
            headers = {
                "Content-Type": "application/json", "User-Agent": f"jctd/{VERSION}",
                **signed(self._webhooks.key_of(webhook), event_id(event), self._now_us() // US, body),
            }
            async with asyncio.timeout(ANSWER_S):
                status = await self._status(client, webhook, headers, body)
        except (httpx.HTTPError, httpx.InvalidURL, Unreachable, JctError, ssl.SSLError, OSError) as error:
            return _why(error)
        if 200 <= status < 300:
            return ""
        return f"it answered {status}" + ("; redirects are not followed" if 300 <= status < 400 else "")

    async def _status(
        self, client: httpx.AsyncClient, webhook: Webhook, headers: dict[str, str], body: bytes
    ) -> int:
        """From the first allowed address that takes a connection."""
        url = httpx.URL(webhook.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        error: Exception = Unreachable(f"{url.host} has no address")
        for address in await resolve(url.host, port):
            if why := self._forbidden(address, webhook.team is not None):
                error = Unreachable(f"{url.host} {why}")
                continue
            there = url.copy_with(host=str(address))
            more = {**headers, "Host": url.netloc.decode("ascii")}
            try:
                async with client.stream(
                    "POST", there, content=body, headers=more, extensions={"sni_hostname": url.host}
                ) as response:
                    return response.status_code
            except httpx.ConnectError as caught:
                error = caught
        raise error


def event_id(event: Event) -> str:
    """Unique also among events that got the same number before a restore."""
    return f"evt_{event.seq}_{event.time_us}"


def signed(key: bytes, id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    mac = hmac.new(key, f"{id}.{timestamp_s}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id, "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
    }  # fmt: skip


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return f"no answer within {ANSWER_S:g} s"
    text = str(error) or type(error).__name__
    return "".join(letter for letter in text if letter.isprintable())[:200]


def _end(task: "asyncio.Task[None]") -> None:
    if not task.done():
        task.cancel()
    elif not task.cancelled() and (error := task.exception()) is not None:
        log.error("a webhook's task failed; it is begun again", error=f"{type(error).__name__}: {error}")
