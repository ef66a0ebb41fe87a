"""When, over REST: ranges that hold, what was foreseen beside what came, and what nobody knows."""

import pytest
from rest_client import problem, submit_whole

from scheduler.core.settings import US


def test_an_eta_is_a_range_with_its_confidence_and_the_queue_shows_it(cluster, admin):
    id = submit_whole(admin)
    cluster.advance(8.0)
    seen = admin.get(f"/v1/jobs/{id}/eta")
    assert seen["confidence"] == 0.9
    assert seen["futures"] == 5
    assert seen["start"] is None
    assert seen["end"]["earliest"] <= seen["end"]["likely"] <= seen["end"]["latest"]
    [row] = admin.get("/v1/jobs")["jobs"]
    assert row["eta"]["finish_earliest"] == seen["end"]["earliest"]
    while not (job := admin.get(f"/v1/jobs/{id}"))["ended"]:
        cluster.advance(2.0, 0.5)
    assert seen["end"]["earliest"] <= job["ended"] <= seen["end"]["latest"]


def test_what_was_foreseen_is_kept_beside_the_truth_and_counted(cluster, admin):
    id = submit_whole(admin)
    cluster.advance(8.0)
    before = admin.get(f"/v1/jobs/{id}/eta")
    assert before["coverage"]["share"] is None
    while not admin.get(f"/v1/jobs/{id}")["ended"]:
        cluster.advance(2.0, 0.5)
    after = admin.get(f"/v1/jobs/{id}/eta")
    assert [one["moment"] for one in after["estimates"]] == ["submit", "start"]
    assert all(one["inside"] for one in after["estimates"])
    for parts in (after["so_far"], *(one["parts"] for one in after["estimates"])):
        assert sum(seconds for name, seconds in parts.items() if name != "total_s") == pytest.approx(parts["total_s"])
    assert after["coverage"] == {"share": 1.0, "inside": 1, "before": 0, "after": 0, "unknown": 0}
    assert "jct_eta_coverage 1.0" in cluster.metrics().decode()
    reloaded = cluster.repository.load()
    assert sorted(moment for job, moment in reloaded.estimates) == ["start", "submit"]


def test_nobody_knows_is_said_with_its_cause(cluster, admin):
    job = {"name": "sleeper", "team": "nlp", "workdir": "/w", "command": ["sleep", "9"]}
    id = admin("POST", "/v1/jobs", json={"job": job}).json()["id"]
    seen = admin.get(f"/v1/jobs/{id}/eta")
    assert seen["end"] is None
    assert seen["unknown"] == "nothing tells yet how much work it has, or how fast it is"


def test_a_job_that_is_too_large_is_told_so_and_not_that_nobody_knows_its_work(cluster, admin):
    id = submit_whole(admin, gpus={"min": 99, "max": 99})
    cluster.advance(1.0)
    seen = admin.get(f"/v1/jobs/{id}/eta")
    assert (seen["start"], seen["end"]) == (None, None)
    assert seen["unknown"] == (
        "it cannot start in this cluster as it is. It needs at least 99 devices of one kind; the cluster has 4."
    )


def test_another_teams_future_is_none_of_yours(cluster, admin, as_):
    id = submit_whole(admin)
    for what in ("eta", "why", "prio"):
        problem(as_("rob", "vision")("GET", f"/v1/jobs/{id}/{what}"), 404, "not-found")


def test_a_forecast_in_the_past_is_made_anew(cluster, admin):
    id = submit_whole(admin)
    cluster.advance(8.0)
    made = admin.get(f"/v1/jobs/{id}/eta")["made"]
    assert admin.get(f"/v1/jobs/{id}/eta")["made"] == made
    cluster._now_us += 40 * US
    assert admin.get(f"/v1/jobs/{id}/eta")["made"] > made
