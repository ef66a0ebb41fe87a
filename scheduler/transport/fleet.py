"""Sessions of agents: who is connected, which Targets they were sent, which reads of logs are under way."""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from scheduler.core.entities import Entity
from scheduler.core.errors import Code, JctError
from scheduler.core.events import CoreEvent, NodeHeard, NodeHello, NodeReports
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State
from scheduler.core.targets import nodes_touched, targets_by_node
from scheduler.protocol.messages import (
    Beat,
    BeatAck,
    Chunk,
    FromAgent,
    Hello,
    Message,
    NeedSecrets,
    Read,
    Refused,
    Reports,
    Secrets,
    Target,
    Targets,
    Welcome,
)
from scheduler.protocol.plausible import MOST
from scheduler.protocol.plausible_hello import plausible_hello
from scheduler.protocol.plausible_telemetry import plausible_telemetry
from scheduler.protocol.telemetry import bounded

log = structlog.get_logger()

TOLD, MAX_SESSION, MAX_MISSING = 10_000, 100, 500
RESEND_S = 2.0
READ_TIMEOUT_S = 10.0
_CANNOT_BE = "cannot be true: that is taken as unknown, or as the nearest that can be"


class Sender(Protocol):
    def send(self, route: bytes, message: Message) -> bool: ...


@dataclass(slots=True)
class Session:
    """One start of one agent. version: of its present Targets; it grows over all sessions of this daemon's epoch, since
    an agent that says Hello again ignores what is older than what it has."""

    node: str
    session: str
    key: str
    route: bytes
    welcomed: bool = False
    version: int = 0
    targets: tuple[Target, ...] | None = None
    sent_at_s: float = 0.0
    applied: int = 0


class Fleet:
    """Turns messages into core events, and the state into Targets. Everything sent follows a commit."""

    def __init__(
        self, sender: Sender, state: State, settings: CoreSettings, post: Callable[[CoreEvent], None],
        clock_s: Callable[[], float], secrets_of: Callable[[int], dict[str, str]],
    ) -> None:
        """secrets_of: a job's, opened. Raises JctError."""
        self._sender = sender
        self._state = state
        self._settings = settings
        self._post = post
        self._clock_s = clock_s
        self._secrets_of = secrets_of
        self._sessions: dict[tuple[str, str], Session] = {}
        self._reads: dict[int, tuple[str, asyncio.Future[Chunk]]] = {}
        self._told: dict[tuple[str, str, str], None] = {}
        self._numbers = itertools.count(1)
        self._versions = itertools.count(1)

    def take(self, route: bytes, key: str, message: FromAgent) -> None:
        """One message, whose sender owns `key`."""
        match message:
            case Hello():
                if plausible_hello(message) != message:
                    self._say_once(key, message.session, f"what a node says that it is {_CANNOT_BE}")
                for pending in [one for one in self._sessions.values() if one.key == key and not one.welcomed]:
                    del self._sessions[key, pending.session]  # else those that one batch supersedes would stay
                self._sessions[key, message.session] = Session(message.node, message.session, key, route)
                self._post(NodeHello(hello=message, public_key=key))
            case Beat():
                self._beat(route, key, message)
            case Reports():
                if (session := self._known(route, key, message.session)) is not None:
                    session.applied = message.applied
                    event = NodeReports(node=session.node, session=session.session, reports=message.reports)
                    self._post(event)
            case NeedSecrets():
                self._answer_secrets(route, key, message)
            case Chunk():
                asked, future = self._reads.get(message.request, ("", None))
                if future is not None and asked == key and not future.done():
                    future.set_result(message)

    def _answer_secrets(self, route: bytes, key: str, ask: NeedSecrets) -> None:
        """Only to a node that has a living member of that very attempt."""
        session = self._known(route, key, ask.session)
        members = self._state.members_of(ask.job, ask.attempt)
        if session is None or all(member.node != session.node or member.gone_us is not None for member in members):
            return
        try:
            answer = Secrets(job=ask.job, attempt=ask.attempt, values=self._secrets_of(ask.job))
        except JctError as error:
            answer = Secrets(job=ask.job, attempt=ask.attempt, values={}, missing=error.message)
        self._sender.send(route, answer)

    def _known(self, route: bytes, key: str, session_id: str) -> Session | None:
        session = self._sessions.get((key, session_id))
        if session is None:
            self._say_once(key, session_id, "messages of no present session are ignored")
        if session is None or not session.welcomed:
            return None
        session.route = route
        return session

    def _say_once(self, key: str, session: str, what: str) -> None:
        """One line for each session, and each thing to be said of it."""
        told = key, session[:MAX_SESSION], what
        if told not in self._told:
            self._told[told] = None
            log.warning(what, session=session[:MAX_SESSION], key=key)
            if len(self._told) > TOLD:
                del self._told[next(iter(self._told))]

    def _beat(self, route: bytes, key: str, beat: Beat) -> None:
        session = self._known(route, key, beat.session)
        version = session.version if session is not None else 0
        known = session is not None
        self._sender.send(
            route, BeatAck(epoch=self._state.epoch, session=beat.session, version=version, known=known)
        )
        if session is None:
            return
        session.applied = beat.applied
        telemetry = bounded(beat.telemetry) if beat.telemetry is not None else None
        if telemetry is not None and plausible_telemetry(telemetry) != telemetry:
            self._say_once(key, beat.session, f"what a node measures {_CANNOT_BE}")
        self._post(
            NodeHeard(
                node=session.node, session=session.session, beat=beat.seq, health=beat.health, telemetry=telemetry
            )
        )
        if session.applied < session.version and self._clock_s() - session.sent_at_s > RESEND_S:
            self._send_targets(session)

    def after_commit(self, refusals: list[tuple[str, str, str]], rows: Iterable[Entity]) -> None:
        """Welcome or refuse the newly come, and send Targets to every node whose Targets have changed.

        rows: what was committed.
        """
        touched = dict.fromkeys(nodes_touched(self._state, rows))
        unsent = [one.node for one in self._sessions.values() if one.targets is None]
        wanted = targets_by_node(self._state, {**touched, **dict.fromkeys(unsent)}, self._settings)
        for key, session_id, why in refusals:
            if (refused := self._sessions.pop((key, session_id), None)) is not None:
                self._sender.send(refused.route, Refused(session=session_id, why=why))
        for session in list(self._sessions.values()):
            if self._state.said_hello.get(session.node) != session.session:
                if session.welcomed:  # superseded by a newer session of the same node, or lost
                    del self._sessions[session.key, session.session]
                continue
            if not session.welcomed:
                session.welcomed = True
                self._sender.send(session.route, Welcome(epoch=self._state.epoch, session=session.session))
            targets = wanted.get(session.node, session.targets)
            if targets != session.targets:
                session.targets = targets
                session.version = next(self._versions)
                self._send_targets(session)

    @property
    def settled(self) -> bool:
        """Whether every agent has acknowledged the newest Targets it was sent."""
        return all(session.welcomed and session.applied == session.version for session in self._sessions.values())

    def _send_targets(self, session: Session) -> None:
        session.sent_at_s = self._clock_s()
        message = Targets(
            epoch=self._state.epoch, session=session.session, version=session.version,
            targets=session.targets or (),
        )
        self._sender.send(session.route, message)

    async def read_log(
        self, node: str, job: int, attempt: int, member: int, offset: int, limit: int, since_s: float | None = None
    ) -> Chunk:
        """Ask a node for bytes of a log. Raises JctError UNREACHABLE when it is away, or answers what cannot be."""
        session = next((one for one in self._sessions.values() if one.node == node and one.welcomed), None)
        request = next(self._numbers)
        future: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        self._reads[request] = session.key if session is not None else "", future
        ask = Read(
            request=request, job=job, attempt=attempt, member=member, offset=offset, limit=limit, since_s=since_s
        )
        try:
            if session is None or not self._sender.send(session.route, ask):
                raise TimeoutError
            chunk = await asyncio.wait_for(future, READ_TIMEOUT_S)
        except TimeoutError:
            missing = f"node {node}, which has the log, does not answer"
            raise JctError(Code.UNREACHABLE, missing, hint="the log is there again when the node is") from None
        finally:
            self._reads.pop(request, None)
        if len(chunk.data) > limit or not (0 <= chunk.offset <= MOST and 0 <= chunk.size <= MOST):
            wrong = f"node {node} did not answer what was asked of it"
            raise JctError(Code.UNREACHABLE, wrong, hint="see its agent's log")
        return msgspec.structs.replace(chunk, missing=chunk.missing[:MAX_MISSING])
