"""No request makes the daemon fail: schemathesis tries the whole OpenAPI document, and limits answer by name."""

import asyncio

import httpx
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from small_cluster import SmallCluster

from scheduler.api.app import create_app
from scheduler.api.rates import RateLimit
from scheduler.store.tokens import Role


def test_no_request_of_the_whole_document_is_answered_with_500(tmp_path):
    cluster = SmallCluster(tmp_path)
    cluster.missing = "not here"
    try:
        app = create_app(cluster, cluster.tokens, cluster.audit, cluster.vault, "0")
        app.user_middleware = [item for item in app.user_middleware if item.cls is not RateLimit]
        headers = {"Authorization": f"Bearer {cluster.token('root', 'ops', Role.ADMIN)}"}
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        tried = 0
        for found in schema.get_all_operations():
            operation = found.ok()

            @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            def attempt(case):
                nonlocal tried
                tried += 1
                response = case.call(headers=headers)
                case.validate_response(response, checks=[not_a_server_error])

            schemathesis_test(operation, attempt)
        assert tried > 500
    finally:
        cluster.close()


def schemathesis_test(operation, attempt):
    from hypothesis import given

    given(case=operation.as_strategy())(attempt)()


def test_a_flood_is_answered_429_with_the_limit_named(tmp_path):
    cluster = SmallCluster(tmp_path)
    try:
        clock = [0.0]
        app = RateLimit(create_app(cluster, cluster.tokens, cluster.audit, cluster.vault, "0"), 10, 3, lambda: clock[0])

        async def scoped(scope, receive, send):
            await app({**scope, "jct.request_id": "r1"}, receive, send)

        async def get(token: str) -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(scoped), base_url="http://jctd") as client:
                return await client.get("/v1/nodes", headers={"Authorization": f"Bearer {token}"})

        one, other = cluster.token("eva"), cluster.token("rob")
        assert [asyncio.run(get(one)).status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = asyncio.run(get(one))
        assert refused.headers["retry-after"] == "1"
        assert "10 requests a second, 3 at once" in refused.json()["detail"]
        assert asyncio.run(get(other)).status_code == 200
        clock[0] += 0.1
        assert asyncio.run(get(one)).status_code == 200
    finally:
        cluster.close()
