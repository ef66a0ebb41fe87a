"""Why a job waits, and what its place is made of, over REST: true reasons with numbers."""

import pytest
from rest_client import Client, problem, submit_whole

from policies.model.decision import Decisions, Wait
from policies.registry import find
from scheduler.api.times import rfc3339
from scheduler.api.whys import UNBLOCK
from scheduler.core.binding import Binder
from scheduler.core.events import Planned


def code(client: Client, id: int) -> str:
    return client.get(f"/v1/jobs/{id}/why")["code"]


def test_why_names_the_reason_its_numbers_what_would_help_and_since_when(cluster, admin):
    first = submit_whole(admin)
    cluster.advance(8.0)
    second = submit_whole(admin, "second")
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
    id = submit_whole(admin)
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
    id = submit_whole(admin)
    cluster.advance(1.0)
    found = admin.get(f"/v1/jobs/{id}/why")
    assert (found["code"], away.node in found["text"]) == ("NodeDown", True)


def test_b43_a_node_that_took_the_jobs_own_devices_with_it_is_the_reason(cluster, admin):
    """They are still leased to what ran there; the cluster is not too small for that."""
    id = submit_whole(admin, work={"total": "100000 steps"})
    cluster.advance(8.0)
    assert code(admin, id) == "Running"
    away = cluster._agents.pop()
    cluster.advance(75.0, 1.0)
    found = admin.get(f"/v1/jobs/{id}/why")
    assert (found["code"], found["text"]) == (
        "NodeDown", f"It needs 4 device(s) and could have 2; 2 more are on nodes that do not answer ({away.node})."
    )  # fmt: skip


def test_b43_work_without_a_checkpoint_is_what_an_urgent_job_waits_for(cluster, admin):
    low = submit_whole(admin, min_runtime="1h")
    cluster.advance(8.0)
    urgent = submit_whole(admin, "urgent", priority=90)
    cluster.advance(1.0)
    found = admin.get(f"/v1/jobs/{urgent}/why")
    assert found["code"] == "CheckpointMissing"
    assert f"job {low} of lower priority has 4" in found["text"]


def test_b43_caps_holds_begin_times_and_parents_are_named(cluster, admin):
    admin("POST", "/v1/teams", json={"name": "nlp", "max_devices": 3})
    capped = submit_whole(admin)
    admin("POST", "/v1/queues", json={"name": "night", "paused": True})
    small = {"gpus": {"min": 1, "max": 1}}
    paused = submit_whole(admin, "paused", queue="night", **small)
    later = submit_whole(admin, "later", begin="2030-01-01T00:00:00Z", **small)
    parent = submit_whole(admin, "held", **small)
    admin("POST", f"/v1/jobs/{parent}/hold")
    child = submit_whole(admin, "child", after=[parent], **small)
    absent = submit_whole(admin, "absent", gpus={"min": 1, "max": 1, "type": ["H100"]})
    cluster.advance(1.0)
    codes = [code(admin, id) for id in (capped, paused, later, parent, child, absent)]
    assert codes == ["QuotaTeam", "QueuePaused", "BeginTime", "Held", "Dependency", "NoSuchGPUType"]


def test_b43_caps_of_users_and_of_queues_are_named(cluster, admin, as_):
    for kind, name in (("users", "eva"), ("queues", "day")):
        assert admin("POST", f"/v1/{kind}", json={"name": name, "max_devices": 3}).status_code == 201
    own, queued = submit_whole(as_("eva")), submit_whole(admin, "queued", queue="day")
    cluster.advance(1.0)
    assert [code(admin, id) for id in (own, queued)] == ["QuotaUser", "QuotaQueue"]


def test_b43_who_has_been_promised_devices_waits_for_their_holders(cluster, admin):
    low = submit_whole(admin, work={"total": "100000 steps"})
    cluster.advance(8.0)
    assert admin("POST", f"/v1/jobs/{low}/checkpoint").status_code == 200
    cluster.advance(8.0)
    urgent = submit_whole(admin, "urgent", priority=90)
    seen = set()
    while admin.get(f"/v1/jobs/{urgent}")["state"] != "RUNNING":
        cluster.advance(0.25)
        seen.add(code(admin, urgent))
    assert "WaitingForPreemption" in seen
    assert seen <= {"Pending", "WaitingForPreemption", "CheckpointMissing", "Probing", "Starting", "Running"}


def test_b43_where_enough_is_free_but_no_plan_fits_there_it_is_the_topology(cluster, admin):
    id = submit_whole(admin)
    found = Binder(cluster.state, cluster.now_us()).binding(Wait(id, "Priority", "kept for others"))
    assert (found.code, found.text.startswith("4 device(s) are free")) == ("Topology", True)


def test_b43_a_coming_reservation_is_the_reason_only_of_jobs_that_would_not_be_gone_by_then(cluster, admin):
    runs = submit_whole(admin, work={"total": "1000000 steps"}, gpus=2, min_runtime="1h")
    cluster.advance(8.0)
    [kept] = {member.node for member in cluster.state.members.values() if member.job == runs and member.attempt == 2}
    other = "n1" if kept == "n0" else "n0"
    soon = rfc3339(cluster.now_us() + 3_600_000_000)
    body = {"name": "upgrade", "nodes": [other], "begin": soon, "duration": "4h", "team": "ops"}
    assert admin("POST", "/v1/reservations", json=body).status_code == 201
    long, short = (
        submit_whole(admin, name, gpus=2, time_limit=limit, preemptible=False)
        for name, limit in (("long", "5h"), ("short", "10m"))
    )
    waits = tuple(Wait(id, "Resources", "none is free") for id in (long, short))
    binder = Binder(cluster.state, cluster.now_us(), waits)
    assert [binder.binding(wait).code for wait in waits] == ["Reservation", "Resources"]


def test_b43_nobody_comes_first_who_is_held_or_too_large(cluster, admin):
    held = submit_whole(admin, "held", priority=90)
    assert admin("POST", f"/v1/jobs/{held}/hold").status_code == 200
    large = submit_whole(admin, "large", priority=90, gpus=99)
    id = submit_whole(admin)
    waits = Wait(large, "TooLarge", "it needs 99"), Wait(id, "Priority", "4 are free, but kept for others")
    cluster._step(Planned(decisions=Decisions(1, waits=waits), nonce="n"))
    assert [code(admin, job) for job in (held, large, id)] == ["Held", "TooLarge", "Topology"]


def test_b43_a_job_that_may_never_be_stopped_is_not_waited_for_until_it_saves(cluster, admin):
    body = {"name": "sla", "value": 10, "guaranteed": True}
    assert admin("POST", "/v1/priority-classes", json=body).status_code == 201
    low = submit_whole(admin, priority="sla")
    cluster.advance(8.0)
    assert code(admin, low) == "Running"
    urgent = submit_whole(admin, "urgent", priority=90)
    for policy in ("jct", "priority"):
        cluster._policy = find(policy)
        cluster.advance(1.0)
        assert code(admin, urgent) == "Resources"
        assert code(admin, low) == "Running"


def test_b43_every_published_reason_has_a_way_out():
    published = """
        Resources Priority QuotaTeam QuotaUser MaxRunning Dependency DependencyFailed BeginTime Held Reservation
        NodeDown NoSuchGPUType TooLarge GangPartial Topology Backoff Interference CheckpointMissing
        WaitingForPreemption Draining OutOfRange
    """
    assert not [reason for reason in published.split() if not UNBLOCK.get(reason)]


@pytest.mark.parametrize("policy", ["priority", "jct", "fifo", "srtf", "las", "goodput", "slope"])
def test_every_policy_tells_terms_whose_sums_give_the_order(cluster, admin, policy):
    admin("POST", "/v1/teams", json={"name": "nlp", "priority": 5})
    submit_whole(admin, "runs")
    cluster.advance(8.0)
    lower = submit_whole(admin, "lower", priority=40)
    higher = submit_whole(admin, "higher", priority=60)
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
    id = submit_whole(admin)
    admin("POST", f"/v1/jobs/{id}/cancel")
    problem(admin("GET", f"/v1/jobs/{id}/prio"), 409, "conflict")
