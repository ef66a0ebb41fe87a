"""Bearer tokens: 32 random bytes, shown once, stored as SHA-256.

All tokens are kept in memory, so that a request costs no query; there is one daemon a database.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlalchemy import select

from scheduler.core.errors import Code, JctError
from scheduler.store.repository import Repository
from scheduler.store.rows import to_entity
from scheduler.store.tables import TokenRow, table_of

PREFIX = "jct_"
SECRET_BYTES = 32
_TOKENS = table_of(TokenRow)


class Role(StrEnum):
    """viewer sees its team's jobs; user submits, and acts on its own; team lead acts on all of the team's and sets its
    users' caps; operator acts on every job, node and queue; admin also on teams, tokens and the audit log. agent drains
    and resumes nodes, and sees no job.
    """

    ADMIN = "admin"
    OPERATOR = "operator"
    LEAD = "team-lead"
    USER = "user"
    VIEWER = "viewer"
    AGENT = "agent"

    @property
    def rank(self) -> int:
        """Who may do more has the higher one."""
        return {"admin": 4, "operator": 3, "team-lead": 2, "user": 1}.get(self.value, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Who a bearer is. name: what the token is for."""

    id: int
    hash: str
    name: str
    user: str
    team: str
    role: Role
    created_us: int
    expires_us: int | None = None
    revoked_us: int | None = None

    def valid(self, now_us: int) -> bool:
        return self.revoked_us is None and (self.expires_us is None or now_us < self.expires_us)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    def __init__(self, repository: Repository, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._repository = repository
        self._random_bytes = random_bytes
        with repository.read.connect() as connection:
            rows = connection.execute(select(_TOKENS)).mappings().all()
        self._by_hash = {row["hash"]: to_entity(Token, row) for row in rows}

    def create(
        self, *, name: str, user: str, team: str, role: Role, now_us: int, expires_us: int | None = None
    ) -> tuple[str, Token]:
        """The secret, which is nowhere else from now on, and what is stored of it."""
        secret = PREFIX + self._random_bytes(SECRET_BYTES).hex()
        row = {
            "hash": _hash(secret), "name": name, "user": user, "team": team, "role": role.value,
            "created_us": now_us, "expires_us": expires_us, "revoked_us": None,
        }  # fmt: skip
        with self._repository.transaction() as connection:
            id = connection.execute(_TOKENS.insert().values(row).returning(_TOKENS.c.id)).scalar_one()
        token = to_entity(Token, {**row, "id": id})
        self._by_hash[token.hash] = token
        return secret, token

    def find(self, secret: str, now_us: int) -> Token | None:
        """Whose secret it is; None for a wrong, expired or revoked one. Looked up by hash: timing tells nothing."""
        token = self._by_hash.get(_hash(secret))
        return token if token is not None and token.valid(now_us) else None

    def is_valid(self, token: Token, now_us: int) -> bool:
        """Whether a token that was found before still is."""
        now = self._by_hash.get(token.hash)
        return now is not None and now.valid(now_us)

    def revoke(self, id: int, now_us: int) -> None:
        """From now on. Raises JctError NOT_FOUND; revoking twice is harmless."""
        token = next((token for token in self._by_hash.values() if token.id == id), None)
        if token is None:
            raise JctError(Code.NOT_FOUND, f"there is no token {id}")
        with self._repository.transaction() as connection:
            connection.execute(_TOKENS.update().where(_TOKENS.c.id == id).values(revoked_us=now_us))
        self._by_hash[token.hash] = replace(token, revoked_us=now_us)

    def all(self) -> list[Token]:
        """In order of creation."""
        return sorted(self._by_hash.values(), key=lambda token: token.id)
