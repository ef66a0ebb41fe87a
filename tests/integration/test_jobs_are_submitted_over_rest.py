"""What a submission over REST promises: a durable job, the same one for the same key, or everything that is wrong."""

import json

import pytest
from rest_client import JOB, problem
from small_cluster import START_US

from scheduler.api.middleware import MAX_BODY_BYTES
from scheduler.api.times import rfc3339


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


def test_b47_the_same_idempotency_key_is_the_same_job(admin, cluster):
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


def test_b51_what_was_sent_is_never_echoed(admin):
    response = admin("POST", "/v1/jobs", json={"job": JOB, "spec_key": "zzz-secret"})
    assert "zzz-secret" not in response.text
    response = admin("POST", "/v1/jobs", json={"job": {**JOB, "env": {"TOKEN": ["zzz-secret"]}}})
    assert "zzz-secret" not in response.text


def test_b51_values_of_env_and_arguments_are_not_shown(admin):
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


def test_a_checkpoint_directory_belongs_to_one_unfinished_job(admin, cluster):
    checkpoint = {"dir": "/ckpt/mine"}
    first = admin.submit(checkpoint=checkpoint)
    refused = admin("POST", "/v1/jobs", json={"job": {**JOB, "checkpoint": checkpoint}})
    assert f"job {first}" in problem(refused, 409, "conflict")["detail"]
    admin.submit(checkpoint={"dir": "/ckpt/other"})
    admin("POST", f"/v1/jobs/{first}/cancel")
    cluster.advance(20)
    assert admin.submit(checkpoint=checkpoint) > first


def test_tasks_of_two_arrays_do_not_share_checkpoint_directories(admin):
    """Each task has its own below the array's."""
    array = {**JOB, "checkpoint": {"dir": "/ckpt/array"}, "array": "0-3"}
    assert admin("POST", "/v1/jobs", json={"job": array}).status_code == 201
    for other in ({"array": "3-5"}, {"array": "", "checkpoint": {"dir": "/ckpt/array/task-1"}}):
        fields = {name: value for name, value in {**array, **other}.items() if value}
        problem(admin("POST", "/v1/jobs", json={"job": fields}), 409, "conflict")
    assert admin("POST", "/v1/jobs", json={"job": {**array, "array": "4-5"}}).status_code == 201
