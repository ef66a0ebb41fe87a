"""Requests to the real application, without a socket."""

import asyncio

import httpx
from small_cluster import SmallCluster

from scheduler.api.app import create_app

JOB = {"name": "gpt", "team": "nlp", "entrypoint": "m:f", "workdir": "/w", "gpus": {"min": 1, "max": 2}}
WHOLE = {**JOB, "gpus": {"min": 4, "max": 4}, "work": {"total": "400 steps"}}
"""Needs all that a small cluster has, and says how much work it is."""


class Client:
    """Requests to the real application, without a socket."""

    def __init__(self, cluster: SmallCluster, token: str | None) -> None:
        self._app = create_app(cluster, cluster.tokens, cluster.audit, cluster.vault, "0")
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}

    def __call__(self, method: str, path: str, headers: dict[str, str] | None = None, **more: object) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://jctd") as client:
                return await client.request(method, path, headers={**self._headers, **(headers or {})}, **more)

        return asyncio.run(send())

    def get(self, path: str, **query: object) -> dict:
        response = self("GET", path, params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def submit(self, headers: dict[str, str] | None = None, **fields: object) -> int:
        response = self("POST", "/v1/jobs", headers, json={"job": {**JOB, **fields}})
        assert response.status_code == 201, response.text
        return response.json()["id"]


def submit_whole(client: Client, name: str = "gpt", **fields: object) -> int:
    """A WHOLE job with checkpoints of its own."""
    job = {**WHOLE, "name": name, "checkpoint": {"dir": f"/checkpoints/{name}"}, **fields}
    sent = client("POST", "/v1/jobs", json={"job": job, "spec_key": "0" * 64})
    assert sent.status_code == 201, sent.text
    return sent.json()["id"]


def problem(response: httpx.Response, status: int, code: str) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["code"] == code
    assert body["status"] == status
    assert body["request_id"]
    return body
