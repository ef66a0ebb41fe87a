"""Many clients at once: every submission is answered, and one idempotency key is one job however often it is sent."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import httpx
from cluster import JOBS, PATIENCE_S, Cluster

CLIENTS = 16
KEYS = 40
TIMES = 5


def test_b47_repeated_submissions_in_parallel_make_one_job_a_key(cluster: Cluster) -> None:
    cluster.begin()

    def submit(number: int) -> tuple[int, int]:
        key = number % KEYS
        job = {"name": f"job {key}", "entrypoint": "paced:job", "workdir": str(JOBS)}
        headers = {"Idempotency-Key": f"key-{key}"}
        return key, int(cluster.client.call("POST", "jobs", body={"job": job}, headers=headers).json()["id"])

    def look(_: int) -> int:
        return len(cluster.client.jobs(None)[0])

    with ThreadPoolExecutor(CLIENTS) as clients:
        looks = clients.map(look, range(KEYS))
        answers = list(clients.map(submit, range(KEYS * TIMES)))
        assert max(looks) <= KEYS
    ids = dict(answers)
    assert all(ids[key] == id for key, id in answers)
    assert len(set(ids.values())) == KEYS
    jobs, _ = cluster.client.jobs(None)
    assert {job["id"]: job["name"] for job in jobs} == {id: f"job {key}" for key, id in ids.items()}


def status(cluster: Cluster, path: str) -> int:
    return httpx.get(cluster.url + path).status_code


def test_b05_another_process_that_locks_the_database_costs_waiting_and_nothing_else(cluster: Cluster) -> None:
    cluster.begin(a="fake:1", b="fake:1")
    running = cluster.submit(gpus=1, work={"total": "100000000 steps"})
    cluster.until_state(running, "RUNNING")
    body = {"job": {"name": "late", "entrypoint": "paced:job", "workdir": str(JOBS)}}
    headers = {"Authorization": f"Bearer {cluster.token()}", "Idempotency-Key": "late"}

    def submit() -> httpx.Response:
        return httpx.post(f"{cluster.url}/v1/jobs", json=body, headers=headers, timeout=PATIENCE_S)

    other = sqlite3.connect(cluster.daemon_folder / "jctd.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused = submit()
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    cluster.eventually(lambda: status(cluster, "/readyz") == 503, "it says that it is not ready")
    assert status(cluster, "/healthz") == 200
    assert [job["id"] for job in cluster.client.jobs(None)[0]] != []
    other.execute("ROLLBACK")
    cluster.eventually(lambda: status(cluster, "/readyz") == 200, "it is ready again")
    assert submit().json()["id"] == submit().json()["id"] == running + 1
    other.close()
    assert cluster.job(running)["state"] == "RUNNING"
    kinds = {event["kind"] for event in cluster.client.events("events")}
    assert not kinds & {"NodeSilent", "NodeLost"}
