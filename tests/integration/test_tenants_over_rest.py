"""Who may do what over REST, and that a cap, a role or a team's wall holds on every route."""

import pytest
from rest_client import JOB, Client, problem

from scheduler.store.tokens import Role


def audit(admin, **fields) -> list[dict]:
    entries = admin.get("/v1/audit", limit=1000)["entries"]
    return [entry for entry in entries if all(entry[name] == value for name, value in fields.items())]


# --- walls between teams --------------------------------------------------------------------------------------

ACTS = [
    ("GET", ""), ("GET", "/events"), ("GET", "/logs"), ("PATCH", ""), ("POST", "/cancel"), ("POST", "/hold"),
    ("POST", "/release"), ("POST", "/requeue"), ("POST", "/signal"), ("POST", "/checkpoint"),
]  # fmt: skip
BODIES = {"PATCH": {"priority": 1}, "/signal": {"signal": "SIGUSR1"}}


@pytest.mark.parametrize(("method", "path"), ACTS)
def test_b50_another_teams_job_is_404_everywhere_and_the_try_is_audited(as_, admin, method, path):
    id = as_("eva").submit()
    rob = as_("rob", "vision", Role.LEAD)
    body = BODIES.get(path) or BODIES.get(method)
    more = {"json": body} if body else {}
    told = problem(rob(method, f"/v1/jobs/{id}{path}", **more), 404, "not-found")
    assert told["detail"] == f"there is no job {id}"
    assert audit(admin, actor="rob", allowed=False, target=f"job {id}")
    assert problem(rob(method, "/v1/jobs/999" + path, **more), 404, "not-found")["detail"] == "there is no job 999"


def test_another_teams_job_cannot_be_waited_for(as_):
    id = as_("eva").submit()
    other = as_("rob", "vision")
    problem(other("POST", "/v1/jobs", json={"job": {**JOB, "team": "vision", "after": [id]}}), 404, "not-found")


def test_users_act_on_their_own_jobs_leads_on_their_teams_viewers_on_none(as_, admin):
    id = as_("eva").submit()
    mate, lead, viewer = as_("max"), as_("ida", role=Role.LEAD), as_("vic", role=Role.VIEWER)
    assert mate.get(f"/v1/jobs/{id}")["id"] == id == viewer.get(f"/v1/jobs/{id}")["id"]
    problem(mate("POST", f"/v1/jobs/{id}/hold"), 403, "not-allowed")
    problem(viewer("POST", f"/v1/jobs/{id}/hold"), 403, "not-allowed")
    problem(viewer("POST", "/v1/jobs", json={"job": JOB}), 403, "not-allowed")
    assert lead("POST", f"/v1/jobs/{id}/hold").status_code == 200
    problem(lead("POST", f"/v1/jobs/{id}/preempt"), 403, "not-allowed")
    problem(lead("POST", f"/v1/jobs/{id}/top"), 403, "not-allowed")
    assert as_("op", "ops", Role.OPERATOR)("POST", f"/v1/jobs/{id}/top").status_code == 200
    assert {entry["actor"] for entry in audit(admin, allowed=False)} == {"max", "vic", "ida"}


def test_an_agent_token_drains_nodes_and_sees_no_job(as_):
    id = as_("eva").submit()
    agent = as_("health", "nlp", Role.AGENT)
    assert agent("POST", "/v1/nodes/n0/drain", json={"reason": "Xid 79"}).status_code == 200
    assert agent("POST", "/v1/nodes/n0/resume").status_code == 204
    problem(agent("GET", f"/v1/jobs/{id}"), 404, "not-found")
    assert agent.get("/v1/jobs")["jobs"] == []
    problem(agent("POST", "/v1/jobs", json={"job": JOB}), 403, "not-allowed")


# --- records --------------------------------------------------------------------------------------------------


def test_a_record_is_made_changed_by_name_and_removed_with_old_and_new_in_the_audit_log(admin, as_):
    made = admin("POST", "/v1/teams", json={"name": "nlp", "max_devices": 4, "weight": 2})
    assert made.status_code == 201
    tag = made.headers["etag"]
    assert made.json()["fields"]["max_devices"] == 4
    problem(admin("POST", "/v1/teams", json={"name": "nlp"}), 409, "conflict")
    changed = admin("PATCH", "/v1/teams/nlp", {"If-Match": tag}, json={"max_running": 3})
    fields = changed.json()["fields"]
    assert (fields["max_devices"], fields["max_running"], fields["weight"]) == (4, 3, 2.0)
    problem(admin("PATCH", "/v1/teams/nlp", {"If-Match": tag}, json={"max_running": 1}), 409, "conflict")
    assert admin("PATCH", "/v1/teams/nlp", json={"max_devices": None}).json()["fields"]["max_devices"] is None
    for wrong in ({"max_device": 1}, {"weight": 0}, {"weight": None}, {"max_devices": -1}, {"max_devices": "4"}):
        problem(admin("PATCH", "/v1/teams/nlp", json=wrong), 422, "bad-spec")
    tried = admin("PATCH", "/v1/teams/nlp", params={"dry_run": "true"}, json={"weight": 3})
    assert (tried.status_code, tried.json()["changes"]) == (200, False)
    assert as_("eva").get("/v1/teams/nlp")["fields"]["share"] == 0.0
    problem(as_("rob", "vision")("GET", "/v1/teams/nlp"), 404, "not-found")
    problem(as_("eva")("PATCH", "/v1/teams/nlp", json={"max_devices": 100}), 403, "not-allowed")
    assert admin("DELETE", "/v1/teams/nlp").status_code == 204
    problem(admin("DELETE", "/v1/teams/nlp"), 404, "not-found")
    change = audit(admin, action="change team", allowed=True)[0]
    assert (change["old"]["max_devices"], change["new"]["max_devices"]) == (4, None)
    assert audit(admin, action="change team", actor="eva", allowed=False)


def test_a_lead_sets_the_caps_of_the_own_teams_users_only(as_, admin):
    lead = as_("ida", role=Role.LEAD)
    assert lead("POST", "/v1/users", json={"name": "eva", "team": "nlp", "max_devices": 1}).status_code == 201
    problem(lead("POST", "/v1/users", json={"name": "rob", "team": "vision", "max_devices": 1}), 403, "not-allowed")
    problem(lead("PATCH", "/v1/users/eva", json={"team": "vision"}), 403, "not-allowed")


def test_queues_are_for_some_teams_and_can_be_paused(as_, admin, cluster):
    admin("POST", "/v1/queues", json={"name": "night", "teams": ["nlp"], "paused": True})
    id = as_("eva").submit(queue="night")
    cluster.advance(15)
    assert admin.get(f"/v1/jobs/{id}")["reason"]["code"] == "QueuePaused"
    vision = {**JOB, "team": "vision", "queue": "night"}
    problem(as_("rob", "vision")("POST", "/v1/jobs", json={"job": vision}), 403, "not-allowed")
    problem(admin("POST", "/v1/jobs", json={"job": {**JOB, "queue": "nowhere"}}), 422, "bad-spec")
    problem(admin("DELETE", "/v1/queues/night"), 409, "conflict")
    problem(admin("DELETE", "/v1/queues/default"), 409, "conflict")
    assert admin("PATCH", f"/v1/jobs/{id}", json={"queue": "default"}).json()["queue"] == "default"
    assert admin("DELETE", "/v1/queues/night").status_code == 204


def test_a_queue_may_have_a_policy_of_its_own_that_exists(admin):
    made = admin("POST", "/v1/queues", json={"name": "night", "policy": "fifo"})
    assert made.json()["fields"]["policy"] == "fifo"
    told = problem(admin("PATCH", "/v1/queues/night", json={"policy": "lottery"}), 422, "bad-spec")
    assert "jct" in str(told)
    assert admin("PATCH", "/v1/queues/night", json={"policy": ""}).json()["fields"]["policy"] == ""


def test_who_may_not_use_a_class_may_not_ask_for_as_much_by_number(as_, admin):
    admin("POST", "/v1/priority-classes", json={"name": "urgent", "value": 90, "teams": ["vision"]})
    admin("POST", "/v1/priority-classes", json={"name": "low", "value": 10})
    eva, rob = as_("eva"), as_("rob", "vision")
    assert eva.get(f"/v1/jobs/{eva.submit(priority='low')}")["priority"] == 10
    assert rob.get(f"/v1/jobs/{rob.submit(team='vision', priority='urgent')}")["priority"] == 90
    for priority in ("urgent", 90, 500):
        problem(eva("POST", "/v1/jobs", json={"job": {**JOB, "priority": priority}}), 403, "not-allowed")
    id = eva.submit(priority=89)
    problem(eva("PATCH", f"/v1/jobs/{id}", json={"priority": "urgent"}), 403, "not-allowed")
    problem(eva("PATCH", f"/v1/jobs/{id}", json={"priority": "unheard"}), 422, "bad-spec")


# --- caps -----------------------------------------------------------------------------------------------------


def test_b36_a_cap_is_never_passed_and_exact_after_every_step(as_, admin, cluster):
    admin("POST", "/v1/teams", json={"name": "nlp", "max_devices": 2, "max_pending": 10})
    eva = as_("eva")
    ids = [eva.submit(gpus=1, work={"total": "10 steps"}) for _ in range(10)]
    problem(eva("POST", "/v1/jobs", json={"job": JOB}), 409, "quota")
    for id in ids[::2]:
        eva("POST", f"/v1/jobs/{id}/cancel")
    assert admin.get("/v1/teams/nlp")["fields"]["use"] == {"devices": 0, "running": 0, "pending": 5}
    eva.submit(gpus=3)
    for _ in range(90):
        cluster.advance(1)
        use = admin.get("/v1/teams/nlp")["fields"]["use"]
        gpus = sum(job["gpus"]["have"] for job in admin.get("/v1/jobs", all=True)["jobs"])
        assert use["devices"] == gpus <= 2
    jobs = {job["id"]: job for job in admin.get("/v1/jobs", all=True)["jobs"]}
    assert {jobs[id]["state"] for id in ids[1::2]} == {"COMPLETED"}
    blocked = jobs[max(jobs)]["reason"]
    assert blocked["code"] == "QuotaTeam"
    assert "at most 2" in blocked["text"]
    assert admin.get("/v1/usage")["rows"][0]["gpu_s"] > 0


def test_a_user_and_running_cap(as_, admin, cluster):
    admin("POST", "/v1/users", json={"name": "eva", "team": "nlp", "max_running": 1})
    eva = as_("eva")
    first, second = (eva.submit(gpus=1, work={"total": "4000 steps"}) for _ in range(2))
    cluster.advance(5)
    assert admin.get(f"/v1/jobs/{first}")["gpus"]["have"] == 1
    assert admin.get(f"/v1/jobs/{second}")["reason"]["code"] == "MaxRunning"
    admin("PATCH", "/v1/users/eva", json={"max_running": None})
    cluster.advance(5)
    assert admin.get(f"/v1/jobs/{second}")["gpus"]["have"] == 1


# --- tokens ---------------------------------------------------------------------------------------------------


def test_tokens_are_shown_once_and_nobody_gives_more_than_they_have(as_, admin, cluster):
    eva = as_("eva")
    made = eva("POST", "/v1/tokens", json={"name": "laptop", "expires_in": "1h"}).json()
    assert made["secret"].startswith("jct_")
    assert [token["secret"] for token in eva.get("/v1/tokens")["tokens"]] == [None, None]
    own = Client(cluster, made["secret"])
    assert own.get("/v1/jobs")["jobs"] == []
    for more in ({"role": "admin"}, {"user": "root"}, {"team": "vision"}, {"role": "agent"}):
        problem(eva("POST", "/v1/tokens", json={"name": "x", **more}), 403, "not-allowed")
    problem(as_("rob", "vision")("DELETE", f"/v1/tokens/{made['id']}"), 404, "not-found")
    assert eva("DELETE", f"/v1/tokens/{made['id']}").status_code == 204
    problem(own("GET", "/v1/jobs"), 401, "not-logged-in")
    assert made["secret"] not in str(admin.get("/v1/audit"))
    lead = as_("ida", role=Role.LEAD)
    assert lead("POST", "/v1/tokens", json={"name": "x", "user": "new"}).status_code == 201
