"""Streams over REST: what is new as it happens, resumed where they were cut, and over when they should be."""

import asyncio
import base64
import json

import httpx
import pytest
from rest_client import JOB, Client
from small_cluster import SmallCluster
from small_server import serving

from scheduler.api import streams
from scheduler.store.ring import EventRing
from scheduler.store.tokens import Role

SSE = {"Accept": "text/event-stream"}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LOOK_S", 0.01)
    small = SmallCluster(tmp_path)
    yield small
    small.close()


def lines(text: str) -> list[dict]:
    """Events of a stream: id, event, data."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


def test_a_jobs_stream_tells_its_story_and_ends_with_it(admin, cluster):
    id = admin.submit(gpus=1, work={"total": "5 steps"})
    cluster.advance(20)
    told = lines(admin("GET", f"/v1/jobs/{id}/events", SSE).text)
    assert told[0]["event"] == "Submitted"
    assert [item["event"] for item in told][-2:] == ["Ended", "end"]
    seen = told[2]["id"]
    again = lines(admin("GET", f"/v1/jobs/{id}/events", {**SSE, "Last-Event-ID": seen}).text)
    assert again == told[3:]
    cluster.ring = EventRing()  # as after a restart: memory has nothing, the database has all
    assert lines(admin("GET", f"/v1/jobs/{id}/events", SSE).text) == told


def test_b41_a_logs_stream_is_byte_for_byte_and_ends(admin, cluster):
    id = admin.submit(gpus=1, work={"total": "5 steps"})
    cluster.advance(20)
    attempt = admin.get(f"/v1/jobs/{id}")["attempt"]
    written = b"\x1b[2J 100%\r" + bytes(range(256)) + b"x" * 200_000 + b"no newline"
    cluster.logs[id, attempt, 0] = written
    told = lines(admin("GET", f"/v1/jobs/{id}/logs", SSE).text)
    assert b"".join(base64.b64decode(item["data"]["data"]) for item in told if item["event"] == "log") == written
    assert told[-1]["event"] == "end"
    tail = lines(admin("GET", f"/v1/jobs/{id}/logs", SSE, params={"tail": 1}).text)
    assert base64.b64decode(tail[-2]["data"]["data"]).endswith(b"no newline")


@pytest.mark.parametrize("end", ["revoked", "stopped"])
def test_an_open_stream_ends_when_its_token_is_revoked_or_the_daemon_stops(cluster, end, monkeypatch):
    secret = cluster.token("eva", "nlp", Role.OPERATOR)
    client, waits = Client(cluster, secret), cluster.ring.wait
    begun = asyncio.Event()

    async def wait(*arguments) -> None:
        begun.set()
        await waits(*arguments)

    monkeypatch.setattr(cluster.ring, "wait", wait)

    async def scene() -> str:
        transport = httpx.ASGITransport(client._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://jctd") as http:
            headers = {**SSE, "Authorization": f"Bearer {secret}"}
            asking = asyncio.create_task(http.get("/v1/events", headers=headers))
            await begun.wait()
            if end == "revoked":
                cluster.tokens.revoke(cluster.tokens.all()[0].id, cluster.now_us())
            else:
                cluster.ring.close()
            return (await asking).text

    assert asyncio.run(asyncio.wait_for(scene(), 30)).startswith("retry: 1000")


def test_streams_hold_no_database_session_and_another_teams_events_are_not_in_them(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LOOK_S", 0.01)
    with serving(tmp_path) as (cluster, url):
        headers = {"Authorization": f"Bearer {cluster.token('rob', 'vision', Role.USER)}"}
        own = {"Authorization": f"Bearer {cluster.token('eva', 'nlp', Role.USER)}"}
        opened = [
            httpx.Client(base_url=url, headers={**SSE, **headers}, timeout=30).stream("GET", "/v1/events")
            for _ in range(8)
        ]
        responses = [stream.__enter__() for stream in opened]
        sources = [response.iter_lines() for response in responses]
        assert all(next(source) == "retry: 1000" for source in sources)
        assert cluster.repository.read.pool.checkedout() == 0
        body = {"job": {**JOB, "team": "vision", "name": "mine"}}
        with httpx.Client(base_url=url) as http:
            assert http.post("/v1/jobs", json={"job": JOB}, headers=own).status_code == 201
            assert http.post("/v1/jobs", json=body, headers=headers).status_code == 201
        for source in sources:
            first = next(line for line in source if line.startswith("data: "))
            assert "mine" in json.loads(first.removeprefix("data: "))["message"]
        cluster.ring.close()
        for stream in opened:
            stream.__exit__(None, None, None)


def test_b65_metrics_count_and_name_no_job(admin, cluster):
    admin("POST", "/v1/teams", json={"name": "nlp", "max_devices": 2})
    id = admin.submit(name="very-secret-name", gpus=2, work={"total": "100000 steps"}, checkpoint={"dir": "/c/1"})
    cluster.advance(10)
    assert admin("POST", f"/v1/jobs/{id}/preempt").status_code == 200
    cluster.advance(10)
    text = Client(cluster, None)("GET", "/metrics").text
    assert 'jctd_attempts_ended_total{cause="preempted"} 1.0' in text  # b65: one, though the gang had two ranks
    assert admin.get(f"/v1/jobs/{id}")["preemptions"] == 1
    assert 'jctd_devices_used{holder="team",name="nlp"} 2.0' in text
    assert 'jctd_devices_limit{holder="team",name="nlp"} 2.0' in text
    assert "jctd_invariant_violations 0.0" in text
    assert 'jctd_jobs{queue="default",state="RUNNING"} 1.0' in text
    assert "very-secret-name" not in text
