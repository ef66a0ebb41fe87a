"""What REST promises: lists that are whole, one team's jobs only, problems with stable codes."""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_client import JOB, Client, problem
from small_cluster import START_US, SmallCluster

from scheduler.api.paging import from_cursor, to_cursor
from scheduler.core.errors import JctError

# --- lists ----------------------------------------------------------------------------------------------------


def test_b48_pages_hold_each_job_once_while_states_change(admin, cluster):
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
def test_b48_any_cursor_is_ours_or_refused(text):
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
    "header",
    [
        None, "", "Bearer", "bearer", "Bearer ", "Bearer x", "Bearer jct_", "Basic x", "Basic eDp5", "Bearer \xe4",
        "Bearer ключ".encode().decode("latin-1"), "{prefix}", "{old}",
    ],
)  # fmt: skip
def test_b52_bad_tokens_are_refused_alike(cluster, header):
    good, old = cluster.token(), cluster.token(expires_us=START_US)
    if header is not None:
        header = header.format(prefix=f"Bearer {good[:-1]}", old=f"Bearer {old}")
    headers = {"Authorization": header.encode("latin-1")} if header is not None else {}
    body = problem(Client(cluster, None)("GET", "/v1/jobs", headers), 401, "not-logged-in")
    assert body["detail"] == "this needs a valid token"
    assert Client(cluster, good)("GET", "/v1/jobs").headers.get("www-authenticate") is None


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
