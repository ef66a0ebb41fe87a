"""Over REST: who owns a running job changes its range of GPUs, and the next pass brings it there."""

from dataclasses import replace

import pytest
from rest_client import problem, submit_whole

from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions
from policies.registry import find


@pytest.fixture
def training(admin, cluster):
    """Makes a job that trains on all four devices."""

    def make(**fields: object) -> int:
        id = submit_whole(admin, gpus={"min": 1, "max": 4}, **{"work": {"total": "100000 steps"}, **fields})
        cluster.advance(10)
        assert (admin.get(f"/v1/jobs/{id}")["state"], have(admin, id)) == ("RUNNING", 4)
        return id

    return make


def have(admin, id: int) -> int:
    return admin.get(f"/v1/jobs/{id}")["gpus"]["have"]


def update(admin, id: int, gpus: object, **more: object):
    return admin("PATCH", f"/v1/jobs/{id}", json={"gpus": gpus}, **more)


def kinds(admin, id: int) -> list[str]:
    return [event["kind"] for event in admin.get(f"/v1/jobs/{id}/events", limit=500)["events"]]


@pytest.mark.parametrize("protected", [{}, {"min_runtime": "10h"}, {"preemptible": False}])
def test_it_shrinks_whatever_protects_it_and_its_books_stay_right(admin, cluster, training, protected):
    id = training(**protected)
    assert update(admin, id, {"min": 1, "max": 2}).status_code == 200
    cluster.advance(10)
    seen = admin.get(f"/v1/jobs/{id}")
    assert (seen["state"], seen["gpus"]) == ("RUNNING", {"have": 2, "min": 1, "max": 2})
    assert seen["preemptions"] == seen["failures"] == 0
    assert kinds(admin, id).count("Changed") == 1
    told = admin.get("/v1/audit", limit=5)["entries"][0]
    assert (told["action"], told["new"]["max_devices"], told["old"]["max_devices"]) == ("change", 2, 4)
    parts = admin.get(f"/v1/jobs/{id}/eta")["so_far"]
    assert parts["total_s"] == pytest.approx(20.0)


def test_it_grows_once_there_is_room_and_says_so_until_then(admin, cluster, training):
    id = training()
    update(admin, id, 2)
    cluster.advance(10)
    other = submit_whole(admin, "other", gpus=2)
    cluster.advance(10)
    update(admin, id, {"min": 3, "max": 4})
    cluster.advance(2)
    seen, why = admin.get(f"/v1/jobs/{id}"), admin.get(f"/v1/jobs/{id}/why")
    text = "Its range is 3 to 4 devices now; it goes on with 2 until then: it needs 1 more, and none is free."
    assert (seen["state"], seen["gpus"]["have"]) == ("RUNNING", 2)
    assert seen["reason"]["code"] == why["code"] == "OutOfRange"
    assert seen["reason"]["text"] == why["text"] == text
    assert "jct update --gpus" in why["unblock"]
    admin("POST", f"/v1/jobs/{other}/cancel")
    cluster.advance(10)
    assert have(admin, id) == 3
    assert admin.get(f"/v1/jobs/{id}")["reason"] is None
    assert admin.get(f"/v1/jobs/{id}/why")["code"] == "Running"


def test_a_range_that_holds_its_size_changes_nothing_now(admin, cluster, training):
    id = training()
    attempt = admin.get(f"/v1/jobs/{id}")["attempt"]
    update(admin, id, {"min": 2, "max": 4})
    cluster.advance(10)
    assert (admin.get(f"/v1/jobs/{id}")["attempt"], have(admin, id)) == (attempt, 4)


def test_stopped_meanwhile_it_comes_back_within_its_new_range(admin, cluster, training):
    id = training()
    admin("POST", f"/v1/jobs/{id}/hold")
    update(admin, id, 2)
    cluster.advance(5)
    admin("POST", f"/v1/jobs/{id}/release")
    cluster.advance(10)
    assert have(admin, id) == 2


def test_the_size_of_a_command_stays_what_it_is_and_the_answer_says_how_to_change_it(admin, cluster):
    job = {"name": "c", "team": "nlp", "command": ["sleep", "999"], "workdir": "/w", "gpus": {"min": 1, "max": 4}}
    id = admin("POST", "/v1/jobs", json={"job": job}).json()["id"]
    cluster.advance(1)
    assert admin.get(f"/v1/jobs/{id}")["state"] == "RUNNING"
    body = problem(update(admin, id, 2), 409, "conflict")
    assert body["detail"] == f"job {id} runs a command, whose GPUs can be changed only while it waits"
    assert f"jct hold {id}" in body["hint"]


def test_one_that_would_lose_all_its_work_is_left_alone(admin, cluster):
    id = admin.submit(gpus={"min": 1, "max": 4}, work={"total": "100000 steps"})
    cluster.advance(10)
    body = problem(update(admin, id, 2), 409, "conflict")
    assert "writes no checkpoints" in body["detail"]
    assert update(admin, id, {"min": 2, "max": 4}).status_code == 200


def test_a_range_without_any_plan_is_refused(admin, training):
    body = problem(update(admin, training(), {"min": 9, "max": 12}), 422, "bad-spec")
    assert "no number of GPUs in that range divides" in body["detail"]


@pytest.mark.parametrize("saves", [True, False])
def test_a_dry_run_says_what_a_smaller_size_costs_and_changes_nothing(admin, cluster, training, saves):
    """Its members have told nothing yet, as after a restart of the daemon: it is taken to change as it trains."""
    id = training(work={"total": "5000 steps"}, **({} if saves else {"checkpoint": None}))
    cluster.state.reports.clear()
    found = update(admin, id, 1, params={"dry_run": "true"}).json()
    assert [(moved["job"], moved["runs"]) for moved in found["moved"]] == [(id, True)]
    assert found["moved"][0]["end_after"] > found["moved"][0]["end_before"]
    cluster.advance(5)
    assert admin.get(f"/v1/jobs/{id}")["gpus"] == {"have": 4, "min": 1, "max": 4}


class Late:
    """Answers its first question about a job with a plan as if its range were still 1 to 4."""

    def __init__(self) -> None:
        self.policy, self.asked = find("priority"), 0

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        self.asked += any(job.menu.profiles for job in snapshot.jobs)
        wide = tuple(replace(job, menu=replace(job.menu, min_devices=1, max_devices=4)) for job in snapshot.jobs)
        return self.policy.decide(replace(snapshot, jobs=wide) if self.asked == 1 else snapshot, effort)


def test_an_answer_that_is_no_longer_within_the_range_is_dropped_and_asked_anew(admin, cluster):
    late = cluster._policy = Late()
    id = submit_whole(admin, gpus=2, work={"total": "100000 steps"})
    cluster.advance(10)
    events = admin.get(f"/v1/jobs/{id}/events", limit=500)["events"]
    dropped = [event["message"] for event in events if event["kind"] == "StartDropped"]
    assert dropped == ["the job may not have 4 device(s)"]
    assert late.asked > 1
    assert have(admin, id) == 2


def test_what_a_smaller_size_would_cost_can_be_asked_before(admin, training):
    id = training(work={"total": "5000 steps"})
    found = admin("POST", "/v1/whatif", json={"set": [{"job": id, "gpus": 1}]}).json()
    assert [moved["job"] for moved in found["moved"]] == [id]
    assert found["moved"][0]["end_after"] > found["moved"][0]["end_before"]
    assert have(admin, id) == 4
    body = problem(admin("POST", "/v1/whatif", json={"set": [{"job": id}]}), 422, "bad-spec")
    assert "name a priority or gpus" in body["detail"]


def test_one_that_would_have_to_begin_anew_under_a_lowered_cap_goes_on_instead(admin, cluster, training):
    id = training()
    assert admin("POST", "/v1/teams", json={"name": "nlp", "max_devices": 1}).status_code == 201
    update(admin, id, 2)
    cluster.advance(5)
    seen = admin.get(f"/v1/jobs/{id}")
    assert (seen["state"], seen["gpus"]["have"], seen["reason"]["code"]) == ("RUNNING", 4, "QuotaTeam")
