"""Webhooks: where events go, with a secret that signs them and a cursor of what has been delivered.

All are kept in memory; there is one daemon a database. A secret is shown once, and stored encrypted, since signing
needs it again.
"""

import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlalchemy import select

from scheduler.core.errors import Code, JctError
from scheduler.store.repository import Repository
from scheduler.store.rows import clean, to_entity
from scheduler.store.tables import WebhookRow, table_of
from scheduler.store.vault import Vault

PREFIX = "whsec_"
SECRET_BYTES = 32
MAX_WEBHOOKS = 200
GROUPS = ("job", "node", "daemon")
_WEBHOOKS = table_of(WebhookRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """team: whose job events it gets; None for everything. events: of GROUPS, or kinds of events such as Ended. cursor:
    the last event that it needs no more. failing_us: since when deliveries fail; None where they do not."""

    id: int
    name: str
    url: str
    team: str | None
    events: tuple[str, ...]
    sealed: str
    by: str
    created_us: int
    cursor: int
    failing_us: int | None = None


class Webhooks:
    """trouble: by id, why the last delivery failed; memory only."""

    def __init__(
        self, repository: Repository, vault: Vault, random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._repository, self._vault, self._random_bytes = repository, vault, random_bytes
        self.trouble: dict[int, str] = {}
        self._moved: dict[int, None] = {}
        with repository.read.connect() as connection:
            rows = connection.execute(select(_WEBHOOKS).order_by(_WEBHOOKS.c.id)).mappings().all()
        self._by_id = {row["id"]: to_entity(Webhook, row) for row in rows}

    def create(
        self, *, name: str, url: str, team: str | None, events: tuple[str, ...], by: str, now_us: int, cursor: int
    ) -> tuple[str, Webhook]:
        """The secret, which nobody is shown again, and what is stored. cursor: it gets what happens after this event.

        Raises JctError QUOTA where there are too many.
        """
        if len(self._by_id) >= MAX_WEBHOOKS:
            raise JctError(Code.QUOTA, f"there are {MAX_WEBHOOKS} webhooks, and more are not allowed")
        secret = PREFIX + base64.b64encode(self._random_bytes(SECRET_BYTES)).decode()
        row = {
            "name": clean(name), "url": url, "team": clean(team), "events": list(events),
            "sealed": self._vault.seal({"secret": secret}), "by": clean(by), "created_us": now_us, "cursor": cursor,
            "failing_us": None,
        }  # fmt: skip
        with self._repository.transaction() as connection:
            id = connection.execute(_WEBHOOKS.insert().values(row).returning(_WEBHOOKS.c.id)).scalar_one()
        webhook = to_entity(Webhook, {**row, "id": id})
        self._by_id[id] = webhook
        return secret, webhook

    def remove(self, id: int) -> None:
        """Nothing is delivered any more, from now on."""
        self._by_id.pop(id, None)
        self.trouble.pop(id, None)
        with self._repository.transaction() as connection:
            connection.execute(_WEBHOOKS.delete().where(_WEBHOOKS.c.id == id))

    def find(self, id: int) -> Webhook | None:
        return self._by_id.get(id)

    def all(self) -> list[Webhook]:
        """In order of creation."""
        return sorted(self._by_id.values(), key=lambda webhook: webhook.id)

    def key_of(self, webhook: Webhook) -> bytes:
        """What signs. Raises JctError where another key sealed it."""
        secret = self._vault.open(webhook.sealed)["secret"]
        return base64.b64decode(secret.removeprefix(PREFIX))

    def move(self, id: int, cursor: int, failing_us: int | None) -> None:
        """How far it has come, in memory until the next `save`."""
        webhook = self._by_id.get(id)
        if webhook is not None and (webhook.cursor, webhook.failing_us) != (cursor, failing_us):
            self._by_id[id] = replace(webhook, cursor=cursor, failing_us=failing_us)
            self._moved[id] = None

    def save(self) -> None:
        """All that have moved, durably, in one transaction. What a crash forgets is delivered twice."""
        moved = [self._by_id[id] for id in list(self._moved) if id in self._by_id]
        if not moved:
            return
        with self._repository.transaction() as connection:
            for webhook in moved:
                values = {"cursor": webhook.cursor, "failing_us": webhook.failing_us}
                connection.execute(_WEBHOOKS.update().where(_WEBHOOKS.c.id == webhook.id).values(values))
        for webhook in moved:
            if self._by_id.get(webhook.id) in (webhook, None):
                self._moved.pop(webhook.id, None)
