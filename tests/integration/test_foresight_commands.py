"""`jct eta`, `why`, `whatif` and `plan --at-cluster` against a small cluster: what they print, and their exit codes."""

import json

import pytest


@pytest.fixture
def queue(jct, living, job_file):
    """Two jobs that need the whole cluster."""
    more = "work: {total: 300 steps}\nmin_runtime: 1h"
    path = job_file(more)
    path.write_text(path.read_text().replace("{min: 1, max: 2}", "{min: 4, max: 4}"))
    ids = [jct("submit", "-q", path)[1].strip() for _ in range(2)]
    living.advance(8.0)
    return ids


def test_eta_and_why_tell_of_a_job(jct, queue):
    code, out, _ = jct("eta", queue[0])
    assert code == 0
    assert "End           in " in out
    assert "90%, from 5 futures" in out
    code, out, _ = jct("why", queue[1])
    assert (code, "Resources: It needs 4 of 4 fake devices" in out) == (0, True)
    assert json.loads(jct("why", queue[1], "--json")[1])["why"]["code"] == "Resources"
    assert json.loads(jct("eta", queue[1], "--json")[1])["eta"]["end"] is not None
    assert jct("eta", 99)[0] == 3


def test_the_queue_shows_ends_and_starts(jct, queue):
    jct("eta", queue[1])
    out = jct("ls")[1]
    assert "END~" in out
    assert "(starts in ~" in out


def test_whatif_exits_0_1_or_255(jct, queue):
    code, out, _ = jct("whatif", "--set", "prio", f"{queue[1]}=51")
    assert (code, out.splitlines()[0]) == (0, "Nothing would change.")
    code, out, _ = jct("whatif", "--add-nodes", "1x4")
    assert code == 1
    assert out.splitlines()[0].split() == ["JOB", "TEAM", "START~", "END~", "SHIFT", "PREEMPTED", "NAME"]
    assert "nothing has been changed" in out
    assert jct("whatif", "--set", "gpus", f"{queue[0]}=1-2,{queue[1]}=2")[0] == 1
    wrong = (["--set", "prio", "nine=9"], ["--set", "gpus", "1=two"], ["--set", "nodes", "1=2"], ["--quota", "nlp"])
    for bad in (*wrong, ["--add-nodes", "4"], [], ["--bogus"], ["--set", "prio", "99=9"]):
        assert jct("whatif", *bad)[0] == 255
    assert jct("whatif", "--drain", "n9")[0] == 255
    assert json.loads(jct("whatif", "--drain", "n0", "--json")[1])["whatif"]["changes"] is True


def test_whatif_without_options_and_for_an_ended_job_says_why_not(jct, queue, living):
    code, out, err = jct("whatif")
    assert (code, out, "--add-nodes 4x8" in err) == (255, "", True)
    jct("cancel", queue[1])
    code, out, err = jct("whatif", "--set", "prio", f"{queue[1]}=90")
    assert (code, out) == (255, "")
    assert f"job {queue[1]} has already ended (CANCELLED)" in err


def test_a_job_larger_than_the_cluster_is_told_so_before_and_after_it_is_submitted(jct, living, job_file):
    path = job_file()
    path.write_text(path.read_text().replace("{min: 1, max: 2}", "{min: 99, max: 99}"))
    told = "it cannot start in this cluster as it is. It needs at least 99 devices of one kind; the cluster has 4."
    code, out, _ = jct("plan", path, "--at-cluster")
    assert (code, f"End           unknown: {told}" in out) == (0, True)
    id = jct("submit", "-q", path)[1].strip()
    other = jct("submit", "-q", job_file())[1].strip()
    living.advance(1.0)
    assert told in jct("eta", id)[1]
    assert jct("hold", other)[0] == 0
    living.advance(30.0)
    assert jct("release", other)[0] == 0
    assert "position 1 of 1 that wait" in jct("prio", other)[1]


def test_plan_at_cluster_says_when_and_on_what(jct, queue, job_file):
    code, out, _ = jct("plan", job_file("work: {total: 300 steps}"), "--at-cluster")
    assert code == 0
    assert out.startswith("Start         in ")
    assert "nothing was submitted" in out
    assert jct("plan", "--at-cluster")[0] == 2
