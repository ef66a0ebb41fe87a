"""What if, over REST: hypotheses, dry runs and plans are only tried, and tell whom they would move."""

import pytest
from rest_client import WHOLE, Client, problem, submit_whole

from scheduler.core.state import State
from scheduler.forecast import fork as forks
from scheduler.forecast.whatif import imagine, more_nodes


@pytest.fixture
def queue(cluster, admin):
    """Three jobs that each need the whole cluster: one runs, two wait."""
    ids = [submit_whole(admin, name, min_runtime="1h") for name in ("first", "second", "third")]
    cluster.advance(12.0)
    return ids


def moved(found: dict) -> dict[int, dict]:
    return {one["job"]: one for one in found["moved"]}


def whatif(client: Client, **hypothesis) -> dict:
    sent = client("POST", "/v1/whatif", json=hypothesis)
    assert sent.status_code == 200, sent.text
    return sent.json()


def test_a_higher_priority_moves_a_job_forward_and_another_back(admin, queue):
    _, second, third = queue
    found = whatif(admin, set=[{"job": third, "priority": 90}])
    assert found["changes"] is True
    assert set(moved(found)) == {second, third}
    assert moved(found)[third]["end_after"] < moved(found)[third]["end_before"]
    assert moved(found)[second]["end_after"] > moved(found)[second]["end_before"]
    [team] = found["teams"]
    assert (team["team"], team["jobs"]) == ("nlp", 3)
    assert admin.get(f"/v1/jobs/{third}")["priority"] == 50, "nothing has changed"


def test_what_moves_nothing_changes_nothing(admin, queue):
    assert whatif(admin, set=[{"job": queue[0], "priority": 51}])["changes"] is False
    found = whatif(admin, quota={"vision": 1})
    [team] = found.pop("teams")
    assert found == {"changes": False, "moved": [], "preempted": [], "futures": 5}
    assert team["jct_before_s"] == team["jct_after_s"]


def test_more_nodes_let_jobs_start_now(admin, queue):
    found = whatif(admin, add_nodes=[{"count": 2, "devices": 4}])
    assert set(queue[1:]) <= set(moved(found))
    assert all(one["end_after"] < one["end_before"] for one in moved(found).values())
    [team] = found["teams"]
    assert team["jct_after_s"] < team["jct_before_s"]


def test_several_groups_of_nodes_are_all_there(admin, queue):
    one, two = ({"count": count, "devices": 2} for count in (1, 2))
    found, alike = whatif(admin, add_nodes=[one, one]), whatif(admin, add_nodes=[two])
    assert set(queue[1:]) <= set(moved(found)), "each needs all four"
    assert [team["jct_after_s"] for team in found["teams"]] == pytest.approx(
        [team["jct_after_s"] for team in alike["teams"]], rel=0.1
    )


def test_as_many_nodes_are_imagined_as_are_asked_for():
    data = forks.encode(forks.take(State(epoch=1), 0))
    imagined = imagine(data, more_nodes(State(epoch=1), [(1_000, 1, "a"), (1_000, 2, "b"), (500, 1, "a")]))
    state = forks.decode(imagined).state
    assert (len(state.nodes), len(state.devices)) == (2_500, 3_500)


SLEEPER = {"name": "sleeper", "team": "nlp", "workdir": "/w", "command": ["sleep", "9"], "gpus": 4}


def test_ends_of_jobs_of_unknown_length_are_unknown_here_as_in_eta_and_in_no_mean(cluster, admin):
    submit_whole(admin, min_runtime="1h")
    cluster.advance(8.0)
    sleepers = [admin("POST", "/v1/jobs", json={"job": SLEEPER}).json()["id"] for _ in range(2)]
    known = submit_whole(admin, "known")
    cluster.advance(1.0)
    found = whatif(admin, add_nodes=[{"count": 3, "devices": 4}])
    for id in sleepers:
        one = moved(found)[id]
        assert one["unknown"] == admin.get(f"/v1/jobs/{id}/eta")["unknown"]
        assert (one["end_before"], one["end_after"]) == (None, None)
        assert one["start_after"] < one["start_before"]
    assert moved(found)[known]["unknown"] is None
    assert moved(found)[known]["end_after"] < moved(found)[known]["end_before"]
    [team] = found["teams"]
    assert (team["jobs"], team["left_out"]) == (2, 2)
    assert team["jct_after_s"] < team["jct_before_s"]


def test_where_no_end_is_known_there_is_no_mean(cluster, admin):
    admin("POST", "/v1/jobs", json={"job": SLEEPER})
    found = whatif(admin, quota={"vision": 1})
    assert found["teams"] == [{"team": "nlp", "jobs": 0, "left_out": 1, "jct_before_s": None, "jct_after_s": None}]


def test_the_end_of_what_would_be_cancelled_is_known_whatever_its_length(cluster, admin):
    id = admin("POST", "/v1/jobs", json={"job": SLEEPER}).json()["id"]
    while admin.get(f"/v1/jobs/{id}")["state"] != "RUNNING":
        cluster.advance(0.1, 0.1)
    sent = admin("POST", f"/v1/jobs/{id}/cancel?dry_run=true")
    one = moved(sent.json())[id]
    assert (one["runs"], one["end_before"], one["end_after"] is None) == (True, None, False)


def test_a_drain_or_a_quota_that_leaves_too_little_lets_nothing_start(admin, queue):
    for hypothesis in ({"drain": ["n0"]}, {"quota": {"nlp": 2}}):
        found = moved(whatif(admin, **hypothesis))
        assert set(found) == set(queue[1:]), "what runs goes on"
        assert {one["start_after"] for one in found.values()} == {None}


def test_another_policy_is_run_ahead_too(admin, queue):
    assert whatif(admin, policy="priority")["changes"] is False
    told = problem(admin("POST", "/v1/whatif", json={"policy": "magic"}), 422, "bad-spec")
    assert "there is no policy 'magic'" in told["detail"]


def test_whom_an_act_would_preempt_is_named(cluster, admin):
    low = submit_whole(admin, checkpoint={"dir": "/c", "every": "1s"}, work={"total": "4000 steps"})
    cluster.advance(12.0)
    other = submit_whole(admin, "other", priority=10)
    cluster.advance(1.0)
    found = whatif(admin, set=[{"job": other, "priority": 90}])
    assert found["preempted"] == [low]


def test_a_hypothesis_needs_the_rights_of_its_acts(admin, as_, queue):
    eva = as_("eva")
    problem(eva("POST", "/v1/whatif", json={"drain": ["n0"]}), 403, "not-allowed")
    problem(eva("POST", "/v1/whatif", json={"set": [{"job": queue[0], "priority": 90}]}), 403, "not-allowed")
    problem(eva("POST", "/v1/whatif", json={}), 422, "bad-spec")
    problem(admin("POST", "/v1/whatif", json={"drain": ["n9"]}), 404, "not-found")


def test_a_dry_run_says_what_the_act_would_change_and_changes_nothing(cluster, admin, queue):
    first, second, third = queue
    before = cluster.repository.load()
    acts = [
        ("PATCH", f"/v1/jobs/{third}", {"priority": 90}, {second, third}),
        ("POST", f"/v1/jobs/{first}/cancel", None, {first, second, third}),
        ("POST", f"/v1/jobs/{third}/top", None, {second, third}),
        ("POST", f"/v1/jobs/{second}/hold", None, {second, third}),
        ("POST", "/v1/nodes/n0/drain", {"reason": "fan"}, {second, third}),
        ("POST", "/v1/teams", {"name": "nlp", "max_devices": 2}, {second, third}),
        ("POST", "/v1/tokens", {"name": "laptop"}, set()),
    ]
    for method, path, body, whom in acts:
        sent = admin(method, f"{path}?dry_run=true", json=body)
        assert sent.status_code == 200, sent.text
        assert set(moved(sent.json())) == whom, path
    after = cluster.repository.load()
    assert (after.jobs, after.teams, after.drains) == (before.jobs, before.teams, before.drains)
    assert len(admin.get("/v1/tokens")["tokens"]) == 1
    assert not [e for e in admin.get("/v1/audit")["entries"] if e["action"] not in ("submit",)]


def test_a_dry_run_is_refused_where_the_act_would_be(admin, as_, queue):
    eva = as_("eva")
    problem(eva("POST", f"/v1/jobs/{queue[0]}/cancel?dry_run=true"), 403, "not-allowed")
    problem(admin("POST", f"/v1/jobs/{queue[1]}/checkpoint?dry_run=true"), 409, "conflict")
    problem(admin("POST", "/v1/jobs/999/hold?dry_run=true"), 404, "not-found")


def test_a_team_sees_only_its_own_jobs_move(admin, as_, queue):
    own = submit_whole(as_("rob", "vision"), "mine", team="vision")
    found = whatif(as_("rob", "vision"), set=[{"job": own, "priority": 90}])
    assert set(moved(found)) == {own}
    assert [team["team"] for team in found["teams"]] == ["vision"]


def test_a_plan_at_the_cluster_says_when_and_on_what_and_submits_nothing(admin, queue):
    job = {**WHOLE, "name": "fourth"}
    sent = admin("POST", "/v1/plan", json={"job": job, "spec_key": "0" * 64})
    assert sent.status_code == 200, sent.text
    seen = sent.json()
    last = admin.get(f"/v1/jobs/{queue[-1]}/eta")
    assert seen["start"]["likely"] > last["start"]["likely"]
    assert seen["nodes"] == {"n0": 2, "n1": 2}
    assert seen["plan"]
    assert seen["end"]["likely"] > seen["start"]["likely"]
    assert [row["id"] for row in admin.get("/v1/jobs")["jobs"]] == queue[::-1]


def test_a_plan_is_told_though_another_job_has_its_checkpoint_directory(admin, queue):
    job = {**WHOLE, "name": "again", "checkpoint": {"dir": "/checkpoints/first"}}
    problem(admin("POST", "/v1/jobs", json={"job": job, "spec_key": "0" * 64}), 409, "conflict")
    sent = admin("POST", "/v1/plan", json={"job": job, "spec_key": "0" * 64})
    assert sent.status_code == 200, sent.text
    assert sent.json()["end"] is not None
