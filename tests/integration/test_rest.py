"""What REST promises: jobs in and out, true states, one team's jobs only, problems with stable codes."""

import asyncio
import base64
import contextlib
import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import START_US, SmallCluster

from scheduler.api.app import create_app
from scheduler.api.middleware import MAX_BODY_BYTES
from scheduler.api.paging import from_cursor, to_cursor
from scheduler.api.times import rfc3339
from scheduler.core.errors import JctError
from scheduler.core.settings import US
from scheduler.jobfile.model import HONOURED_SCHEDULES
from scheduler.store.tokens import Role

JOB = {"name": "gpt", "team": "nlp", "entrypoint": "m:f", "workdir": "/w", "gpus": {"min": 1, "max": 2}}


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


@pytest.fixture
def cluster(tmp_path):
    small = SmallCluster(tmp_path)
    yield small
    small.close()


@pytest.fixture
def admin(cluster):
    return Client(cluster, cluster.token())


@pytest.fixture
def eva(cluster):
    return Client(cluster, cluster.token("eva", "nlp", Role.USER))


@pytest.fixture
def rob(cluster):
    return Client(cluster, cluster.token("rob", "vision", Role.USER))


def problem(response: httpx.Response, status: int, code: str) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["code"] == code
    assert body["status"] == status
    assert body["request_id"]
    return body


# --- submit ---------------------------------------------------------------------------------------------------


def test_a_submitted_job_is_pending_and_durable(admin, cluster):
    response = admin("POST", "/v1/jobs", json={"job": JOB, "spec_key": "0" * 64})
    job = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["name"], job["team"], job["user"], job["state"]) == ("gpt", "nlp", "root", "PENDING")
    assert job["gpus"] == {"have": 0, "min": 1, "max": 2}
    assert job["submitted"] == "2027-01-15T08:00:00.000000Z" == rfc3339(START_US)
    assert job["loss"] is None
    assert job["eta"] is None
    assert cluster.repository.load().jobs[job["id"]].spec_key == "0" * 64


def test_the_same_idempotency_key_is_the_same_job(admin, cluster):
    key = {"Idempotency-Key": "k1"}
    first = admin.submit(key)
    assert admin.submit(key) == first
    assert admin.submit() != first
    body = problem(admin("POST", "/v1/jobs", key, json={"job": {**JOB, "priority": 9}}), 409, "conflict")
    assert f"job {first}" in body["detail"]


def test_keys_belong_to_a_user(admin, eva):
    key = {"Idempotency-Key": "k1"}
    assert admin.submit(key) != eva.submit(key)


def test_everything_wrong_with_a_job_is_told(admin, cluster):
    response = admin("POST", "/v1/jobs", json={"job": {**JOB, "gpuss": 1, "setup": 3}})
    body = problem(response, 422, "bad-spec")
    assert {item["field"]: item["code"] for item in body["problems"]} == {
        "gpuss": "bad-spec",
        "setup": "not-supported-yet",
    }
    assert body["problems"][0]["hint"] == "did you mean 'gpus'?"
    problem(admin("POST", "/v1/jobs", json={"job": {**JOB, "image": 1}}), 422, "not-supported-yet")
    assert cluster.state.jobs == {}


@pytest.mark.parametrize(
    "more",
    [
        {"json": {}},
        {"json": {"job": []}},
        {"json": {"job": JOB, "spec_keyy": "x"}},
        {"json": {"job": JOB, "spec_key": "short"}},
        {"content": b"{"},
        {"content": b"\xff"},
        {"content": b"[" * 100_000},
        {"json": {"job": JOB}, "headers": {"Idempotency-Key": "a b"}},
        {"json": {"job": JOB}, "headers": {"Idempotency-Key": ""}},
        {"json": {"job": JOB}, "params": {"dry": "1"}},
    ],
)
def test_nonsense_is_a_problem_never_a_job(admin, cluster, more):
    response = admin("POST", "/v1/jobs", **more)
    assert response.status_code in {400, 422}
    problem(response, response.status_code, "bad-spec")
    assert cluster.state.jobs == {}


def test_what_was_sent_is_never_echoed(admin):
    response = admin("POST", "/v1/jobs", json={"job": JOB, "spec_key": "zzz-secret"})
    assert "zzz-secret" not in response.text
    response = admin("POST", "/v1/jobs", json={"job": {**JOB, "env": {"TOKEN": ["zzz-secret"]}}})
    assert "zzz-secret" not in response.text


def test_values_of_env_and_arguments_are_not_shown(admin):
    id = admin.submit(env={"HF_TOKEN": "zzz"}, arguments={"api_key": "zzz"})
    assert "zzz" not in json.dumps([admin.get(f"/v1/jobs/{id}"), admin.get("/v1/jobs"), admin.get("/v1/events")])
    assert admin.get(f"/v1/jobs/{id}")["env_keys"] == ["HF_TOKEN"]


def test_bodies_are_bounded_whatever_they_claim(admin):
    body = problem(admin("POST", "/v1/jobs", content=b"x" * (MAX_BODY_BYTES + 1)), 413, "too-large")
    assert str(MAX_BODY_BYTES) in body["detail"]

    async def endless():
        for _ in range(20):
            yield b"x" * 65_536

    problem(admin("POST", "/v1/jobs", content=endless()), 413, "too-large")
    problem(admin("POST", "/v1/jobs", json={"job": {**JOB, "note": "x" * 300_000}}), 413, "too-large")


# --- a job's life ---------------------------------------------------------------------------------------------


def test_a_job_is_followed_from_queue_to_end(admin, cluster):
    id = admin.submit(work={"total": "40 steps"}, parallel={"global_batch": 8})
    cluster.advance(0.25)
    probing = admin.get(f"/v1/jobs/{id}")
    assert (probing["state"], probing["reason"]["code"]) == ("STARTING", "Probing")
    cluster.advance(4)
    running = admin.get(f"/v1/jobs/{id}")
    assert running["state"] == "RUNNING"
    assert running["gpus"]["have"] == running["plan"]["stages"] * running["plan"]["replicas"]
    assert 0 < running["step"] < running["total_steps"] == 40
    assert running["loss"] > 0
    assert running["nodes"]
    assert cluster.now_us() < START_US + 60 * US
    assert running["eta"]["finish_earliest"] < running["eta"]["finish_latest"]
    cluster.advance(60)
    done = admin.get(f"/v1/jobs/{id}")
    assert (done["state"], done["result"], done["exit_code"]) == ("COMPLETED", "COMPLETED", 0)
    assert done["gpus"]["have"] == 0
    assert [attempt["kind"] for attempt in done["attempts"]] == ["probe", "train"]
    train = done["attempts"][1]
    assert train["cause"] == "finished"
    assert train["stages"] == train["plan"]["stages"]
    assert [member["rank"] for member in train["members"]] == list(range(len(train["devices"])))
    parts = [done["ledger"][f"{part}_s"] for part in ("queueing", "startup", "training", "cleanup")]
    assert sum(parts) == pytest.approx(done["ledger"]["total_s"])
    assert done["ledger"]["training_s"] > 0
    assert done["checkpoint_step"] == done["step"] == 40


@pytest.mark.parametrize("schedule", HONOURED_SCHEDULES)
def test_a_job_gets_the_schedule_that_it_asks_for(admin, cluster, schedule):
    id = admin.submit(gpus=2, parallel={"schedule": schedule}, work={"total": "500 steps"})
    cluster.advance(4)
    job = admin.get(f"/v1/jobs/{id}")
    assert (job["state"], job["plan"]["schedule"]) == ("RUNNING", schedule)


def test_preemption_is_shown_as_it_happens(admin, cluster):
    low = [admin.submit(gpus={"min": 1, "max": 4}, work={"total": "500 steps"}) for _ in range(2)]
    cluster.advance(5)
    high = admin.submit(gpus=4, priority=90, work={"total": "20 steps"})
    seen: dict[int, list[str]] = {id: [] for id in (*low, high)}
    for _ in range(240):
        cluster.advance(0.25)
        for job in admin.get("/v1/jobs", all=True)["jobs"]:
            if not seen[job["id"]] or seen[job["id"]][-1] != job["state"]:
                seen[job["id"]].append(job["state"])
            if job["state"] == "PREEMPTING":
                assert job["reason"]["text"]
    assert seen[high][-1] == "COMPLETED"
    assert any("REQUEUED" in states for id, states in seen.items() if id in low)
    preempted = [admin.get(f"/v1/jobs/{id}") for id in low if "REQUEUED" in seen[id]]
    assert all(job["preemptions"] == 1 for job in preempted)
    resumed = preempted[0]["attempts"][-1]
    assert resumed["resumed_step"] > 0


def test_hold_release_priority_and_cancel(admin):
    id = admin.submit()
    held = admin("POST", f"/v1/jobs/{id}/hold").json()
    assert (held["state"], held["reason"]["code"]) == ("HELD", "Held")
    assert admin("POST", f"/v1/jobs/{id}/release").json()["state"] == "PENDING"
    problem(admin("POST", f"/v1/jobs/{id}/release"), 409, "conflict")
    assert admin("PATCH", f"/v1/jobs/{id}", json={"priority": 90}).json()["priority"] == 90
    for change in (
        {},
        {"priority": None},
        {"priority": -1},
        {"priority": 10**9},
        {"name": "x"},
        {"priority": 1.5},
        {"priority": True},
        {"priority": "5"},
    ):
        problem(admin("PATCH", f"/v1/jobs/{id}", json=change), 422, "bad-spec")
    gone = admin("POST", f"/v1/jobs/{id}/cancel", json={"reason": "no longer needed"}).json()
    assert (gone["state"], gone["ended_by"]) == ("CANCELLED", "root")
    assert "no longer needed" in gone["reason"]["text"]
    assert admin("POST", f"/v1/jobs/{id}/cancel").json()["state"] == "CANCELLED"
    problem(admin("POST", f"/v1/jobs/{id}/hold"), 409, "conflict")
    problem(admin("POST", f"/v1/jobs/{id}/cancel", json={"reason": "\x1b[2J"}), 422, "bad-spec")


def test_a_job_that_left_memory_is_still_known(admin, cluster):
    id = admin.submit()
    admin("POST", f"/v1/jobs/{id}/cancel")
    del cluster.state.jobs[id]
    assert admin.get(f"/v1/jobs/{id}")["state"] == "CANCELLED"
    assert admin("POST", f"/v1/jobs/{id}/cancel").json()["state"] == "CANCELLED"
    assert admin.get("/v1/jobs")["jobs"] == []
    assert [job["id"] for job in admin.get("/v1/jobs", all=True)["jobs"]] == [id]


# --- lists ----------------------------------------------------------------------------------------------------


def test_pages_hold_each_job_once_while_states_change(admin, cluster):
    ids = [admin.submit() for _ in range(20)]
    seen, cursor = [], None
    while True:
        query = {"limit": 3, "all": True} | ({"cursor": cursor} if cursor else {})
        found = admin.get("/v1/jobs", **query)
        seen += [job["id"] for job in found["jobs"]]
        if (cursor := found["next"]) is None:
            break
        assert len(found["jobs"]) == 3
        admin("POST", f"/v1/jobs/{ids[0]}/cancel")
        admin("POST", f"/v1/jobs/{ids[12]}/cancel")
        admin.submit()
        cluster.advance(0.25)
    assert seen == sorted(ids, reverse=True)


def test_lists_are_filtered_by_state_and_team(admin):
    one, two = admin.submit(), admin.submit(team="vision")
    three = admin.submit()
    admin("POST", f"/v1/jobs/{three}/cancel")
    admin("POST", f"/v1/jobs/{one}/hold")
    listed = lambda **query: [job["id"] for job in admin.get("/v1/jobs", **query)["jobs"]]  # noqa: E731
    assert listed() == [two, one]
    assert listed(all=True) == [three, two, one]
    assert listed(team="nlp") == [one]
    assert listed(state="CANCELLED") == [three]
    assert listed(state=["HELD", "CANCELLED"]) == [three, one]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0}, {"limit": -1}, {"limit": 10**9}, {"limit": "x"}, {"cursor": "x"}, {"cursor": "aWQ8LTE"},
        {"cursor": ""}, {"cursor": to_cursor(10**30)}, {"state": "SLEEPING"}, {"teamm": "x"}, {"all": "perhaps"},
    ],
)  # fmt: skip
def test_nonsense_in_a_list_is_refused(admin, query):
    problem(admin("GET", "/v1/jobs", params=query), 422, "bad-spec")


@given(st.text(max_size=40) | st.binary(max_size=30).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_any_cursor_is_ours_or_refused(text):
    with contextlib.suppress(JctError):
        assert to_cursor(from_cursor(text)) == text


# --- who may what ---------------------------------------------------------------------------------------------


def test_another_teams_job_does_not_exist(admin, eva, rob, cluster):
    id = eva.submit()
    cluster.logs[id, 1, 0] = b"secret"
    for method, path in (
        ("GET", ""), ("PATCH", ""), ("POST", "/cancel"), ("POST", "/hold"), ("POST", "/release"), ("GET", "/events"),
        ("GET", "/logs"),
    ):  # fmt: skip
        more = {"json": {"priority": 1}} if method == "PATCH" else {}
        theirs = problem(rob(method, f"/v1/jobs/{id}{path}", **more), 404, "not-found")
        none = problem(rob(method, f"/v1/jobs/999{path}", **more), 404, "not-found")
        assert theirs["detail"].replace(str(id), "N") == none["detail"].replace("999", "N")
    assert rob.get("/v1/jobs", all=True)["jobs"] == []
    assert rob.get("/v1/jobs", team="nlp")["jobs"] == []
    assert rob.get("/v1/events")["events"] == []
    assert eva.get(f"/v1/jobs/{id}")["id"] == admin.get(f"/v1/jobs/{id}")["id"]
    cluster.advance(3)
    assert {device["job"] for device in rob.get("/v1/devices")["devices"]} == {None}
    assert id in {device["job"] for device in eva.get("/v1/devices")["devices"]}


def test_acts_and_denied_acts_are_audited(admin, eva, rob, cluster):
    id = eva.submit()
    eva("PATCH", f"/v1/jobs/{id}", json={"priority": 70})
    rob("POST", f"/v1/jobs/{id}/cancel")
    rob("GET", f"/v1/jobs/{id}/logs")
    rob("POST", "/v1/jobs", json={"job": JOB})
    response = admin("POST", f"/v1/jobs/{id}/cancel")
    entries = cluster.audit.newest(10)
    assert [(entry.actor, entry.action, entry.target, entry.allowed) for entry in reversed(entries)] == [
        ("eva", "change", f"job {id}", True),
        ("rob", "cancel", f"job {id}", False),
        ("rob", "logs", f"job {id}", False),
        ("rob", "submit", "team nlp", False),
        ("root", "cancel", f"job {id}", True),
    ]
    assert (entries[-1].old, entries[-1].new) == ({"priority": 50}, {"priority": 70})
    assert (entries[0].old, entries[0].new) == ({"wanted": "run"}, {"wanted": "cancel"})
    assert entries[0].request == response.headers["x-request-id"]


def test_a_user_submits_for_the_own_team(eva):
    body = problem(eva("POST", "/v1/jobs", json={"job": {**JOB, "team": "vision"}}), 403, "not-allowed")
    assert "nlp" in body["detail"]
    job = {key: value for key, value in JOB.items() if key != "team"}
    assert eva("POST", "/v1/jobs", json={"job": job}).json()["team"] == "nlp"


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer x", "Basic x", "Bearer \xe4", "{prefix}", "{old}"]
)
def test_bad_tokens_are_refused_alike(cluster, header):
    good, old = cluster.token(), cluster.token(expires_us=START_US)
    if header is not None:
        header = header.format(prefix=f"Bearer {good[:-1]}", old=f"Bearer {old}")
    headers = {"Authorization": header.encode("latin-1")} if header is not None else {}
    body = problem(Client(cluster, None)("GET", "/v1/jobs", headers), 401, "not-logged-in")
    assert body["detail"] == "this needs a valid token"
    assert Client(cluster, good)("GET", "/v1/jobs").headers.get("www-authenticate") is None


# --- logs, events, nodes --------------------------------------------------------------------------------------


@pytest.fixture
def running(admin, cluster):
    """A job that trains on two devices."""
    id = admin.submit(gpus=2, work={"total": "500 steps"})
    cluster.advance(3)
    job = admin.get(f"/v1/jobs/{id}")
    assert job["state"] == "RUNNING"
    return id, job["attempt"]


def test_logs_are_the_bytes_that_were_written(admin, cluster, running):
    id, attempt = running
    written = bytes(range(256)) * 1000 + b"no newline"
    cluster.logs[id, attempt, 0] = written
    response = admin("GET", f"/v1/jobs/{id}/logs")
    assert response.content == written
    assert response.headers["x-log-size"] == str(len(written))
    assert response.headers["x-log-open"] == "true"
    piece = admin("GET", f"/v1/jobs/{id}/logs", params={"offset": 100_000, "limit": 70_000})
    assert piece.content == written[100_000:170_000]
    assert piece.headers["x-log-offset"] == "100000"
    assert admin("GET", f"/v1/jobs/{id}/logs", params={"offset": 10**9}).content == b""


@pytest.mark.parametrize(("tail", "lines"), [(0, 0), (1, 1), (3, 3), (1_000_000, 30_001)])
def test_the_tail_is_counted_in_lines(admin, cluster, running, tail, lines):
    id, attempt = running
    all_lines = [b"line %d of the log\n" % n for n in range(30_000)] + [b"last, no newline"]
    cluster.logs[id, attempt, 0] = b"".join(all_lines)
    response = admin("GET", f"/v1/jobs/{id}/logs", params={"tail": tail})
    assert response.content == b"".join(all_lines[len(all_lines) - lines :])


def test_ranks_and_attempts_choose_the_log(admin, cluster, running):
    id, attempt = running
    cluster.logs |= {(id, attempt, 0): b"zero", (id, attempt, 1): b"one", (id, 1, 0): b"probe"}
    read = lambda **query: admin("GET", f"/v1/jobs/{id}/logs", params=query)  # noqa: E731
    assert read(rank=1).content == b"one"
    assert read(member=1).content == b"one"
    assert read(attempt=1).content == b"probe"
    assert read(attempt=1).headers["x-log-open"] == "false"
    assert "ranks 0 to 1" in problem(read(rank=2), 404, "not-found")["detail"]
    problem(read(attempt=9), 404, "not-found")
    problem(read(rank=0, member=0), 422, "bad-spec")


def test_a_log_that_is_away_is_not_empty(admin, cluster, running):
    cluster.missing = "node n0 is silent"
    assert "node n0 is silent" in problem(admin("GET", f"/v1/jobs/{running[0]}/logs"), 503, "busy")["detail"]


def test_a_job_that_never_started_says_so(admin):
    id = admin.submit()
    assert "not started" in problem(admin("GET", f"/v1/jobs/{id}/logs"), 404, "not-found")["detail"]


def test_events_tell_the_story_from_a_cursor(admin, running):
    id, _ = running
    whole = admin.get(f"/v1/jobs/{id}/events", limit=1000)
    kinds = [event["kind"] for event in whole["events"]]
    assert kinds[0] == "Submitted"
    assert "Running" in kinds
    assert all(event["job"] == id for event in whole["events"])
    first = admin.get(f"/v1/jobs/{id}/events", limit=2)
    rest = admin.get(f"/v1/jobs/{id}/events", after=first["next"], limit=1000)
    assert first["events"] + rest["events"] == whole["events"]
    assert rest["next"] == whole["next"]
    assert len(admin.get("/v1/events", limit=1000)["events"]) > len(whole["events"])


def test_nodes_and_devices_are_listed(admin, running):
    nodes = admin.get("/v1/nodes")["nodes"]
    assert [(node["id"], node["state"], node["devices"]) for node in nodes] == [("n0", "UP", 2), ("n1", "UP", 2)]
    assert sum(node["free"] for node in nodes) == 2
    devices = admin.get("/v1/devices")["devices"]
    assert sorted(device["state"] for device in devices) == ["free", "free", "held", "held"]
    assert {device["job"] for device in devices} == {None, running[0]}
    assert devices[0]["memory_bytes"] is None


# --- the rest -------------------------------------------------------------------------------------------------


def test_health_and_readiness_need_no_token(cluster):
    anyone = Client(cluster, None)
    assert anyone("GET", "/healthz").json() == {"status": "ok"}
    assert anyone("GET", "/readyz").json() == {"status": "ready"}
    cluster.broken = "the database is locked"
    response = anyone("GET", "/readyz")
    assert "the database is locked" in problem(response, 503, "busy")["detail"]
    assert response.headers["retry-after"] == "1"


def test_every_answer_carries_a_request_id_of_its_own(admin):
    first, second = admin("GET", "/v1/jobs"), admin("GET", "/v1/nothing")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert problem(second, 404, "not-found")["request_id"] == second.headers["x-request-id"]


def test_unknown_queries_methods_and_ids_are_problems(admin):
    for path in ("/v1/nodes", "/v1/devices", "/v1/events", "/v1/jobs/1"):
        problem(admin("GET", path, params={"what": 1}), 422, "bad-spec")
    problem(admin("DELETE", "/v1/jobs"), 405, "not-found")
    for id in ("x", "0", "-1", str(2**70), "1.5"):
        problem(admin("GET", f"/v1/jobs/{id}"), 422, "bad-spec")


def test_a_bug_is_a_problem_that_names_the_request(admin, cluster, monkeypatch, caplog):
    monkeypatch.setattr(SmallCluster, "events", None)
    body = problem(admin("GET", "/v1/events"), 500, "internal")
    assert "NoneType" not in body["detail"]
    assert body["request_id"] in caplog.text


def test_the_openapi_document_names_every_route(admin):
    paths = admin.get("/openapi.json")["paths"]
    found = {(path, method) for path, methods in paths.items() for method in methods}
    wanted = {
        "/v1/jobs": ["get", "post"],
        "/v1/jobs/{id}": ["get", "patch"],
        "/v1/jobs/{id}/cancel": ["post"],
        "/v1/jobs/{id}/hold": ["post"],
        "/v1/jobs/{id}/release": ["post"],
        "/v1/jobs/{id}/logs": ["get"],
        "/v1/jobs/{id}/events": ["get"],
        "/v1/events": ["get"],
        "/v1/nodes": ["get"],
        "/v1/devices": ["get"],
        "/healthz": ["get"],
        "/readyz": ["get"],
        "/v1/nodes/{id}/drain": ["post"],
        "/v1/nodes/{id}/resume": ["post"],
        "/v1/devices/{id}/drain": ["post"],
        "/v1/devices/{id}/resume": ["post"],
        "/v1/reservations": ["get", "post"],
        "/v1/tokens": ["get", "post"],
        "/v1/tokens/{id}": ["delete"],
        "/v1/audit": ["get"],
        "/v1/usage": ["get"],
        **{f"/v1/jobs/{{id}}/{verb}": ["post"] for verb in ("requeue", "signal", "checkpoint", "preempt", "top")},
        **{f"/v1/{kind}": ["get", "post"] for kind in ("teams", "users", "queues", "priority-classes")},
        **{f"/v1/{kind}/{{name}}": ["get", "patch", "delete"] for kind in ("teams", "users", "queues")},
    }
    assert {(path, method) for path, methods in wanted.items() for method in methods} <= found


def test_a_checkpoint_directory_belongs_to_one_unfinished_job(admin, cluster):
    checkpoint = {"dir": "/ckpt/mine"}
    first = admin.submit(checkpoint=checkpoint)
    refused = admin("POST", "/v1/jobs", json={"job": {**JOB, "checkpoint": checkpoint}})
    assert f"job {first}" in problem(refused, 409, "conflict")["detail"]
    admin.submit(checkpoint={"dir": "/ckpt/other"})
    admin("POST", f"/v1/jobs/{first}/cancel")
    cluster.advance(20)
    assert admin.submit(checkpoint=checkpoint) > first
