"""The REST application: /v1 behind tokens; health, readiness and the OpenAPI document in the open."""

from fastapi import FastAPI
from fastapi.responses import Response
from typing_extensions import TypedDict

from scheduler.api import (
    accounting,
    events,
    foresight,
    history,
    hypotheses,
    inventory,
    jobs,
    logs,
    orders,
    priorities,
    problems,
    rehearsal,
    tenants,
    tokens,
    upkeep,
    webhooks,
    whys,
)
from scheduler.api.access import ClusterDep, FindsTokens, KeepsAudit
from scheduler.api.cluster import Cluster
from scheduler.api.middleware import BodyLimit, RequestId
from scheduler.api.rates import RateLimit
from scheduler.core.errors import Code, JctError
from scheduler.store.vault import Vault

_ROUTERS = (
    jobs.router, orders.router, logs.router, events.router, upkeep.router, inventory.router, tenants.router,
    tokens.router, accounting.router, webhooks.router, foresight.router, whys.router, priorities.router,
    hypotheses.router, history.router,
)


class Health(TypedDict):
    status: str


def create_app(
    cluster: Cluster, known_tokens: FindsTokens, audit: KeepsAudit, vault: Vault, version: str
) -> FastAPI:
    """The pages of FastAPI's own documentation load scripts from elsewhere and are left out."""
    app = FastAPI(title="jctd", version=version, docs_url=None, redoc_url=None)
    app.state.cluster = cluster
    app.state.tokens = known_tokens
    app.state.audit = audit
    app.state.vault = vault
    problems.install(app)
    rehearsal.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(RateLimit)
    app.add_middleware(RequestId)
    for router in _ROUTERS:
        app.include_router(router, prefix="/v1")

    @app.get("/healthz", tags=["health"])
    async def healthz() -> Health:
        """The daemon lives."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["health"])
    async def readyz(cluster: ClusterDep) -> Health:
        """The daemon takes requests."""
        if why := cluster.trouble():
            raise JctError(Code.BUSY, f"jctd does not take requests now: {why}")
        return {"status": "ready"}

    @app.get("/metrics", tags=["health"], response_class=Response)
    async def metrics(cluster: ClusterDep) -> Response:
        """For Prometheus: counts, and no job's id or name."""
        return Response(cluster.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app
