"""A stranger on the cores of a running job: nobody tells jctd of it, and jctd tells what it costs."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

SPIN = "while True: pass"
STEPS = 10**9


@contextlib.contextmanager
def neighbours() -> Iterator[None]:
    """Three on each core."""
    with contextlib.ExitStack() as stack:
        for _ in range(3 * (os.cpu_count() or 1)):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN]))
            stack.callback(process.kill)
        yield


def kinds(cluster, id):
    return [event["kind"] for event in cluster.events(id)]


def test_what_a_neighbour_costs_is_told_while_it_is_there(cluster):
    cluster.begin(a="cpu:1")
    id = cluster.submit("tiny:job", arguments={"steps": STEPS})
    cluster.until_step(id, 100)
    with neighbours():
        cluster.eventually(lambda: "DeviceContested" in kinds(cluster, id), "the neighbour is noticed")
        cluster.eventually(lambda: cluster.job(id)["neighbours"], "it is shown")
        (found,) = cluster.job(id)["neighbours"]
        assert found["node"] == "a"
        assert found["costs_percent"] >= 10
        (device,) = cluster.client.call("GET", "devices").json()["devices"]
        assert device["measured"]["slowdown"]["contested"]


def test_b59_an_agent_with_a_model_that_it_cannot_use_works_on_and_says_so(cluster):
    path = cluster.state / "agents" / "a" / "model.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"made by another version")
    cluster.begin(a="cpu:1")
    fell_back = "PredictorFellBack"
    cluster.eventually(lambda: fell_back in {event["kind"] for event in cluster.client.events("events")}, fell_back)
    (told,) = (event for event in cluster.client.events("events") if event["kind"] == fell_back)
    assert (told["node"], "no model file" in told["message"]) == ("a", True)
    assert told["message"].endswith("Instead cpu: a generic forest")
    path.unlink()
    restored = "PredictorRestored"
    cluster.eventually(lambda: restored in {event["kind"] for event in cluster.client.events("events")}, restored)
