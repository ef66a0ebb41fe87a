"""`jctd`: puts store, core, policy, agents' socket and REST together and runs them until told to stop."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO, cast

import structlog
import uvicorn
from pydantic import ValidationError

from policies import registry
from scheduler.api.app import create_app
from scheduler.api.metrics import Metrics
from scheduler.core.effects import Effects
from scheduler.core.entities import Event
from scheduler.core.errors import Code, JctError
from scheduler.core.events import Cancel, Hold, Release, Remark, Request, Submit
from scheduler.core.settings import CoreSettings, us
from scheduler.core.state import State
from scheduler.core.story import Story
from scheduler.driver import Driver
from scheduler.forecast.forecaster import Forecaster
from scheduler.forecast.process import ForecastProcess
from scheduler.garbage import collect_by_the_clock
from scheduler.pass_process import PassProcess
from scheduler.protocol.messages import Chunk
from scheduler.protocol.spec import JobSpec
from scheduler.retention import retention_of
from scheduler.settings import DaemonSettings, from_arguments
from scheduler.store.audit import Audit
from scheduler.store.repository import Repository
from scheduler.store.ring import EventRing
from scheduler.store.tokens import Role, Tokens
from scheduler.store.vault import Vault
from scheduler.store.webhooks import Webhooks
from scheduler.transport.feed import Feed
from scheduler.transport.fleet import Fleet
from scheduler.transport.keys import AllowedAgents, own_pair
from scheduler.transport.mqtt import Broker, Publisher
from scheduler.transport.ports import taken
from scheduler.transport.router import Router
from scheduler.transport.webhooks import Deliverer
from scheduler.version import VERSION

log = structlog.get_logger()

STOP_S = 4
EX_FAILED = 1


class Daemon:
    """What `scheduler.api.cluster.Cluster` asks for, on a running driver."""

    def __init__(
        self, driver: Driver, fleet: Fleet, repository: Repository, ring: EventRing, metrics: Metrics,
        webhooks: Webhooks, forecasts: Forecaster,
    ) -> None:  # fmt: skip
        self.ring = ring
        self.webhooks = webhooks
        self.forecasts = forecasts
        self._metrics = metrics
        self._driver = driver
        self._fleet = fleet
        self._history = repository.history

    @property
    def state(self) -> State:
        return self._driver.state

    def metrics(self) -> bytes:
        return self._metrics.render(self.now_us())

    @property
    def half_life_s(self) -> float:
        return self._driver.settings.half_life_s

    def now_us(self) -> int:
        return self._driver.now_us()

    def trouble(self) -> str:
        return self._driver.trouble

    async def ask(self, make: Callable[[int], Request]) -> int:
        return await self._driver.ask(make)

    async def submit(
        self, spec: JobSpec, spec_key: str, user: str, key: str | None, sealed: str = "",
        past: tuple[tuple[int, str], ...] = (),
    ) -> int:
        return await self._driver.ask(
            lambda number: Submit(
                request=number, spec=spec, spec_key=spec_key, user=user, key=key, sealed=sealed, past=past
            )
        )

    async def cancel(self, job: int, actor: str, reason: str) -> None:
        await self._driver.ask(lambda number: Cancel(request=number, job=job, actor=actor, reason=reason))

    async def hold(self, job: int, actor: str) -> None:
        await self._driver.ask(lambda number: Hold(request=number, job=job, actor=actor))

    async def release(self, job: int, actor: str) -> None:
        await self._driver.ask(lambda number: Release(request=number, job=job, actor=actor))

    async def read_log(
        self, job: int, attempt: int, member: int, offset: int, limit: int, since_s: float | None = None
    ) -> Chunk:
        found = self.state.members.get((job, attempt, member))
        if found is None and (story := await self.story(job)) is not None:
            members = (m for m in story.members if (m.attempt, m.number) == (attempt, member))
            found = next(members, None)
        if found is None:
            raise JctError(Code.NOT_FOUND, f"job {job} has no member {member} in attempt {attempt}")
        return await self._fleet.read_log(found.node, job, attempt, member, offset, limit, since_s)

    async def events(self, job: int | None, after: int, limit: int) -> list[Event]:
        return await asyncio.to_thread(self._history.events, job, after, limit)

    async def past_jobs(self, before: int | None, limit: int, team: str | None, results: Sequence[str]) -> list[Story]:
        return await asyncio.to_thread(self._history.past_jobs, before, limit, team, results)

    async def story(self, job: int) -> Story | None:
        return await asyncio.to_thread(self._history.story, job)


def main() -> None:
    """Entry point of the console script. Exits 1 with one clear message where it must not start."""
    try:
        settings = from_arguments()
    except ValidationError as error:
        for item in error.errors():
            name = "".join(f"{part}: " for part in item["loc"])
            print(f"jctd: {name}{item['msg'].removeprefix('Value error, ')}", file=sys.stderr)
        sys.exit(EX_FAILED)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Lossy())),
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        registry.find(settings.policy)
        with contextlib.closing(Repository.open(settings.url)) as repository:
            asyncio.run(_serve(settings, repository))
    except (JctError, OSError, ValueError) as error:
        hint = f"; {error.hint}" if isinstance(error, JctError) and error.hint else ""
        print(f"jctd: {error}{hint}", file=sys.stderr)
        sys.exit(EX_FAILED)


class _Lossy:
    """Standard error that loses what a full disk does not take: a line of the log must not end the daemon."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


async def _serve(settings: DaemonSettings, repository: Repository) -> None:
    core = CoreSettings(
        jobs_kept=settings.ended_in_memory, retention_s=settings.retention, auto_drain_share=settings.auto_drain_share
    )
    oldest_us = time.time_ns() // 1000 - us(settings.retention) if settings.retention is not None else 0
    state = repository.load(core.jobs_kept, oldest_us)
    driver = Driver(state, repository, PassProcess(settings.policy), core, _clock(state))
    allowed = AllowedAgents(settings.state / "agents")
    endpoint = f"tcp://{settings.agents_host}:{settings.agents_port or '*'}"
    router = Router(endpoint, own_pair(settings.state, "daemon"), allowed)
    vault = Vault.at(settings.state)
    secrets_of = partial(_secrets_of, state, vault)
    fleet = Fleet(router, state, driver.settings, driver.post, time.monotonic, secrets_of)
    ring, metrics = EventRing(), Metrics(state, VERSION, driver.settings.half_life_s)
    forecasts = Forecaster(state, ForecastProcess(), settings.policy, driver.now_us, driver.post)
    driver.after_commit = partial(_after_commit, fleet, ring, metrics, forecasts)
    tokens = Tokens(repository)
    _first_token(settings.state, tokens, driver.now_us())
    address = settings.host, settings.port
    listener = taken(partial(socket.create_server, address), f"{settings.host}:{settings.port}")
    webhooks, feed = Webhooks(repository, vault), Feed(state, ring, repository.history)
    deliverer = Deliverer(webhooks, feed, driver.post, driver.now_us)
    cluster = Daemon(driver, fleet, repository, ring, metrics, webhooks, forecasts)
    app = create_app(cluster, tokens, Audit(repository), vault, VERSION)
    server = _Server(app, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, partial(_stop, server, ring))
    _announce(settings, listener, router.endpoint, state.epoch)
    driver.post(Remark(kind="DaemonStarted", message=f"jctd {VERSION}, epoch {state.epoch}"))
    work = [
        driver.run(), router.run(fleet.take), server.serve(sockets=[listener]), deliverer.run(), forecasts.run(),
        collect_by_the_clock(),
    ]
    if settings.mqtt_url is not None:
        work.append(_publisher(settings.mqtt_url, feed, repository).run())
    if settings.retention is not None:
        work.append(retention_of(settings, driver, repository, webhooks).run())
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        router.close()
        log.info("stopped", note="workers go on; they are found again after the next start")


def _publisher(url: str, feed: Feed, repository: Repository) -> Publisher:
    load, save = partial(repository.remembered, "mqtt"), partial(repository.remember, "mqtt")
    return Publisher(Broker.parse(url), feed, load, save)


def _stop(server: "_Server", ring: EventRing) -> None:
    """Streams end first, so that the server has nobody to wait for."""
    ring.close()
    server.stop()


def _secrets_of(state: State, vault: Vault, job: int) -> dict[str, str]:
    """Raises JctError where there are none, or another key sealed them."""
    secret = state.secrets.get(str(job))
    if secret is None:
        raise JctError(Code.NOT_FOUND, f"the secrets of job {job} are gone")
    return vault.open(secret.sealed)


def _after_commit(
    fleet: Fleet, ring: EventRing, metrics: Metrics, forecasts: Forecaster, effects: Effects
) -> None:
    fleet.after_commit(effects.refusals, effects.rows)
    metrics.take(effects.events)
    ring.add(effects.events)
    forecasts.after_commit(effects.rows)


def _clock(state: State) -> "partial[int]":
    """Wall time at start plus monotonic time since, and never before anything the database has seen."""
    seen = [job.submitted_us for job in state.jobs.values()]
    seen += [at for attempt in state.attempts.values() for at in (attempt.created_us, attempt.ended_us or 0)]
    start_us = max([time.time_ns() // 1000, *(at + 1 for at in seen)])
    return partial(_elapsed, start_us, time.monotonic_ns())


def _elapsed(start_us: int, start_ns: int) -> int:
    return start_us + (time.monotonic_ns() - start_ns) // 1000


def _first_token(folder: Path, tokens: Tokens, now_us: int) -> None:
    """A new database gets one admin token, which is written where only its owner can read it."""
    if tokens.all():
        return
    secret, _ = tokens.create(name="first", user="admin", team="default", role=Role.ADMIN, now_us=now_us)
    descriptor = os.open(folder / "admin-token", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(secret + "\n")


def _announce(settings: DaemonSettings, listener: socket.socket, agents: str, epoch: int) -> None:
    """daemon.json: where this daemon listens, written once it does."""
    host, port = listener.getsockname()[:2]
    scheme = "http" if settings.tls_cert is None else "https"
    facts = {"url": f"{scheme}://{host}:{port}", "agents": agents, "pid": os.getpid(), "epoch": epoch}
    facts["version"] = VERSION
    file = settings.state / "daemon.json"
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(facts))
    temporary.replace(file)
    log.info("listening", **facts)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the daemon stops everything in order, within a few seconds."""

    def __init__(self, app: object, settings: DaemonSettings) -> None:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=STOP_S, server_header=False,
            ssl_certfile=settings.tls_cert, ssl_keyfile=settings.tls_key,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True


if __name__ == "__main__":
    main()
