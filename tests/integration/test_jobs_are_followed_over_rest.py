"""A job's life as REST shows it: states, acts, logs byte for byte, events."""


import pytest
from rest_client import problem
from small_cluster import START_US

from scheduler.core.settings import US
from scheduler.jobfile.model import HONOURED_SCHEDULES


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
        {"gpus": 0},
        {"gpus": {"min": 2, "max": 1}},
        {"gpus": {"min": 1, "type": "A100"}},
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
