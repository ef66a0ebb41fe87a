"""Many clients at once: every submission is answered, and one idempotency key is one job however often it is sent."""

from concurrent.futures import ThreadPoolExecutor

from cluster import JOBS, Cluster

CLIENTS = 16
KEYS = 40
TIMES = 5


def test_repeated_submissions_in_parallel_make_one_job_a_key(cluster: Cluster) -> None:
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
