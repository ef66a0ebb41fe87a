"""Why, when, and what if, over REST: true reasons with numbers, ranges that hold, acts that are only tried."""

import pytest
from rest_client import JOB, Client, problem

from policies.model.decision import Wait
from scheduler.api.whys import UNBLOCK
from scheduler.core.binding import Binder
from scheduler.core.settings import US

WHOLE = {**JOB, "gpus": {"min": 4, "max": 4}, "work": {"total": "400 steps"}}


def submit(client: Client, name: str = "gpt", **fields) -> int:
    job = {**WHOLE, "name": name, "checkpoint": {"dir": f"/checkpoints/{name}"}, **fields}
    sent = client("POST", "/v1/jobs", json={"job": job, "spec_key": "0" * 64})
    assert sent.status_code == 201, sent.text
    return sent.json()["id"]


def code(client: Client, id: int) -> str:
    return client.get(f"/v1/jobs/{id}/why")["code"]


# --- why ------------------------------------------------------------------------------------------------------


def test_why_names_the_reason_its_numbers_what_would_help_and_since_when(cluster, admin):
    first = submit(admin)
    cluster.advance(8.0)
    second = submit(admin, "second")
    cluster.advance(3.0)
    found = admin.get(f"/v1/jobs/{second}/why")
    assert (found["code"], found["state"]) == ("Resources", "PENDING")
    assert "needs 4 of 4 fake devices; none is free" in found["text"]
    assert found["numbers"]["devices"] == {"fake": {"offered": 4, "free": 0}}
    assert (found["numbers"]["position"], found["numbers"]["waiting"]) == (1, 1)
    assert found["waited_s"] >= 2.0
    assert found["unblock"].startswith("the end, or a smaller shape, of a running job")
    assert admin.get(f"/v1/jobs/{first}/why")["code"] == "Running"


def test_b43_what_is_drained_reserved_or_away_is_the_reason_where_it_would_be_enough(cluster, admin):
    assert admin("POST", "/v1/nodes/n0/drain", json={"reason": "fan"}).status_code == 200
    id = submit(admin)
    cluster.advance(1.0)
    found = admin.get(f"/v1/jobs/{id}/why")
    assert (found["code"], found["text"]) == (
        "Draining", "It needs 4 device(s) and could have 2; 2 more are drained (n0)."
    )
    assert "jct resume" in found["unblock"]
    assert admin("POST", "/v1/nodes/n0/resume").status_code == 204
    body = {"name": "upgrade", "nodes": ["n1"], "duration": "4h", "team": "ops"}
    assert admin("POST", "/v1/reservations", json=body).status_code == 201
    cluster.advance(1.0)
    assert code(admin, id) == "Reservation"
    assert admin("DELETE", "/v1/reservations/upgrade").status_code == 204
    cluster.advance(1.0)
    assert code(admin, id) in ("Probing", "Starting", "Running")


def test_b43_a_node_that_does_not_answer_is_the_reason(cluster, admin):
    away = cluster._agents.pop()
    cluster.advance(61.0, 1.0)
    id = submit(admin)
    cluster.advance(1.0)
    found = admin.get(f"/v1/jobs/{id}/why")
    assert (found["code"], away.node in found["text"]) == ("NodeDown", True)


def test_b43_work_without_a_checkpoint_is_what_an_urgent_job_waits_for(cluster, admin):
    low = submit(admin, min_runtime="1h")
    cluster.advance(8.0)
    urgent = submit(admin, "urgent", priority=90)
    cluster.advance(1.0)
    found = admin.get(f"/v1/jobs/{urgent}/why")
    assert found["code"] == "CheckpointMissing"
    assert f"job {low} of lower priority has 4" in found["text"]


def test_b43_caps_holds_begin_times_and_parents_are_named(cluster, admin):
    admin("POST", "/v1/teams", json={"name": "nlp", "max_devices": 3})
    capped = submit(admin)
    admin("POST", "/v1/queues", json={"name": "night", "paused": True})
    small = {"gpus": {"min": 1, "max": 1}}
    paused = submit(admin, "paused", queue="night", **small)
    later = submit(admin, "later", begin="2030-01-01T00:00:00Z", **small)
    parent = submit(admin, "held", **small)
    admin("POST", f"/v1/jobs/{parent}/hold")
    child = submit(admin, "child", after=[parent], **small)
    absent = submit(admin, "absent", gpus={"min": 1, "max": 1, "type": ["H100"]})
    cluster.advance(1.0)
    codes = [code(admin, id) for id in (capped, paused, later, parent, child, absent)]
    assert codes == ["QuotaTeam", "QueuePaused", "BeginTime", "Held", "Dependency", "NoSuchGPUType"]


def test_b43_caps_of_users_and_of_queues_are_named(cluster, admin, as_):
    for kind, name in (("users", "eva"), ("queues", "day")):
        assert admin("POST", f"/v1/{kind}", json={"name": name, "max_devices": 3}).status_code == 201
    own, queued = submit(as_("eva")), submit(admin, "queued", queue="day")
    cluster.advance(1.0)
    assert [code(admin, id) for id in (own, queued)] == ["QuotaUser", "QuotaQueue"]


def test_b43_who_has_been_promised_devices_waits_for_their_holders(cluster, admin):
    low = submit(admin, work={"total": "100000 steps"})
    cluster.advance(8.0)
    assert admin("POST", f"/v1/jobs/{low}/checkpoint").status_code == 200
    cluster.advance(8.0)
    urgent = submit(admin, "urgent", priority=90)
    seen = set()
    while admin.get(f"/v1/jobs/{urgent}")["state"] != "RUNNING":
        cluster.advance(0.25)
        seen.add(code(admin, urgent))
    assert "WaitingForPreemption" in seen
    assert seen <= {"Pending", "WaitingForPreemption", "CheckpointMissing", "Probing", "Starting", "Running"}


def test_b43_where_enough_is_free_but_no_plan_fits_there_it_is_the_topology(cluster, admin):
    id = submit(admin)
    found = Binder(cluster.state, cluster.now_us()).binding(Wait(id, "Priority", "kept for others"))
    assert (found.code, found.text.startswith("4 device(s) are free")) == ("Topology", True)


def test_b43_every_published_reason_has_a_way_out():
    published = """
        Resources Priority QuotaTeam QuotaUser MaxRunning Dependency DependencyFailed BeginTime Held Reservation
        NodeDown NoSuchGPUType TooLarge GangPartial Topology Backoff Interference CheckpointMissing
        WaitingForPreemption Draining
    """
    assert not [reason for reason in published.split() if not UNBLOCK.get(reason)]


# --- prio -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["priority", "jct", "fifo", "srtf", "las", "goodput", "slope"])
def test_every_policy_tells_terms_whose_sums_give_the_order(cluster, admin, policy):
    admin("POST", "/v1/teams", json={"name": "nlp", "priority": 5})
    submit(admin, "runs")
    cluster.advance(8.0)
    lower = submit(admin, "lower", priority=40)
    higher = submit(admin, "higher", priority=60)
    cluster.forecasts.policy = policy
    seen = {id: admin.get(f"/v1/jobs/{id}/prio") for id in (lower, higher)}
    assert [seen[id]["position"] for id in (higher, lower)] == [1, 2]
    for found in seen.values():
        assert found["waiting"] == 2
        for rank in found["ranks"]:
            assert rank["sum"] == pytest.approx(sum(term["value"] for term in rank["terms"]))
    [first] = [rank for rank in seen[lower]["ranks"] if rank["terms"][0]["name"] == "priority of the job"]
    assert [term["value"] for term in first["terms"]] == [40.0, 5.0, 0.0]
    assert first["sum"] == 45.0


def test_a_job_that_has_ended_has_no_place(cluster, admin):
    id = submit(admin)
    admin("POST", f"/v1/jobs/{id}/cancel")
    problem(admin("GET", f"/v1/jobs/{id}/prio"), 409, "conflict")


# --- eta ------------------------------------------------------------------------------------------------------


def test_an_eta_is_a_range_with_its_confidence_and_the_queue_shows_it(cluster, admin):
    id = submit(admin)
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
    id = submit(admin)
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
    id = submit(admin, gpus={"min": 99, "max": 99})
    cluster.advance(1.0)
    seen = admin.get(f"/v1/jobs/{id}/eta")
    assert (seen["start"], seen["end"]) == (None, None)
    assert seen["unknown"] == (
        "it cannot start in this cluster as it is. It needs at least 99 devices of one kind; the cluster has 4."
    )


def test_another_teams_future_is_none_of_yours(cluster, admin, as_):
    id = submit(admin)
    for what in ("eta", "why", "prio"):
        problem(as_("rob", "vision")("GET", f"/v1/jobs/{id}/{what}"), 404, "not-found")


def test_a_forecast_in_the_past_is_made_anew(cluster, admin):
    id = submit(admin)
    cluster.advance(8.0)
    made = admin.get(f"/v1/jobs/{id}/eta")["made"]
    assert admin.get(f"/v1/jobs/{id}/eta")["made"] == made
    cluster._now_us += 40 * US
    assert admin.get(f"/v1/jobs/{id}/eta")["made"] > made


# --- what if --------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(cluster, admin):
    """Three jobs that each need the whole cluster: one runs, two wait."""
    ids = [submit(admin, name, min_runtime="1h") for name in ("first", "second", "third")]
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


SLEEPER = {"name": "sleeper", "team": "nlp", "workdir": "/w", "command": ["sleep", "9"], "gpus": 4}


def test_ends_of_jobs_of_unknown_length_are_unknown_here_as_in_eta_and_in_no_mean(cluster, admin):
    submit(admin, min_runtime="1h")
    cluster.advance(8.0)
    sleepers = [admin("POST", "/v1/jobs", json={"job": SLEEPER}).json()["id"] for _ in range(2)]
    known = submit(admin, "known")
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
    low = submit(admin, checkpoint={"dir": "/c", "every": "1s"}, work={"total": "4000 steps"})
    cluster.advance(12.0)
    other = submit(admin, "other", priority=10)
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
    own = submit(as_("rob", "vision"), "mine", team="vision")
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
