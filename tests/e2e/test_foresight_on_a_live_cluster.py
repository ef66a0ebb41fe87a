"""`why`, `eta` and `whatif` of a real daemon, which runs its queue ahead in a process of its own."""

import pytest

from scheduler.core.errors import JctError


@pytest.fixture
def queue(cluster):
    """One job has all devices, another waits for them."""
    cluster.begin(n0="fake:4")
    first, second = (
        cluster.submit(name=name, work={"total": "100000 steps"}, gpus={"min": 4, "max": 4}, min_runtime="1h")
        for name in ("first", "second")
    )
    cluster.until_state(first, "RUNNING")
    return first, second


def asked(cluster, path, **body):
    return cluster.client.call("POST" if body else "GET", path, body=body or None).json()


def test_a_waiting_jobs_start_follows_the_running_ones_end(cluster, queue):
    first, second = queue
    running, waiting = (asked(cluster, f"jobs/{id}/eta") for id in queue)
    assert running["start"] is None
    assert running["end"]["earliest"] < running["end"]["latest"]
    assert waiting["start"]["likely"] > running["now"]
    why = asked(cluster, f"jobs/{second}/why")
    assert why["code"] in ("Resources", "Priority")
    assert "4" in why["text"]
    assert asked(cluster, f"jobs/{first}/why")["code"] == "Running"
    assert asked(cluster, f"jobs/{second}/prio")["position"] == 1


def test_whatif_foresees_what_a_cancel_then_does(cluster, queue):
    first, second = queue
    cluster.until(second, lambda job: job["eta"] is not None and job["eta"]["start"] is not None, "a forecast")
    found = cluster.client.call("POST", f"jobs/{first}/cancel", {"dry_run": "true"}).json()
    moved = {one["job"]: one for one in found["moved"]}
    assert set(moved) == {first, second}
    assert moved[second]["start_after"] < moved[second]["start_before"]
    assert cluster.job(first)["state"] == "RUNNING", "it was only tried"
    cluster.client.call("POST", f"jobs/{first}/cancel")
    cluster.until(second, lambda job: job["attempt"] is not None, "its start")


def test_scheduling_goes_on_while_the_forecast_is_away(cluster, queue):
    """The first range is kept; a policy that there is not is refused by name, and breaks nothing."""
    first, _ = queue
    cluster.until(first, lambda job: len(job["estimates"]) == 2, "estimates at submission and start")
    with pytest.raises(JctError, match="there is no policy 'none'"):
        asked(cluster, "whatif", policy="none")
    assert asked(cluster, "whatif", policy="fifo")["futures"] >= 1
    third = cluster.submit(name="third", work={"total": "10 steps"}, gpus={"min": 1, "max": 1})
    assert cluster.job(third)["state"] == "PENDING"
