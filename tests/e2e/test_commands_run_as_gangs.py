"""Any program as a job, on real processes: torchrun's variables, secrets, preemption, limits, arrays, dependencies."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cluster import Cluster

PROGRAM = """
import json, os, signal, sys, time
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT JCT_ARRAY_TASK_ID".split()
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
print("secret length", len(os.environ.get("HF_TOKEN", "")), flush=True)
signal.signal(signal.SIGUSR1, lambda *_: print("USR1", flush=True))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with open(os.environ["JCT_PROGRESS_FILE"], "a") as progress:
    progress.write(json.dumps({"step": 3, "loss": 0.5, "total_steps": 9}) + "\\n")
code, seconds = int(sys.argv[1]), float(sys.argv[2])
time.sleep(seconds)
sys.exit(code)
"""


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path).begin(a="cpu:2", b="cpu:1")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "program.py").write_text(PROGRAM)
    yield cluster
    cluster.cancel_all()
    assert cluster.strays() == []
    cluster.stop()


def run(cluster: Cluster, code: int = 0, seconds: float = 0.0, secrets: dict[str, str] | None = None, **fields) -> int:
    command = [sys.executable, "program.py", str(code), str(seconds)]
    job = {"name": "c", "command": command, "workdir": str(cluster.state / "work"), **fields}
    body = {"job": job, **({"secrets": secrets} if secrets else {})}
    return int(cluster.client.call("POST", "jobs", body=body).json()["id"])


def log(cluster: Cluster, id: int, rank: int = 0) -> str:
    return cluster.client.call("GET", f"jobs/{id}/logs", {"rank": rank}).data.decode()


def test_a_gang_of_commands_over_two_nodes(cluster):
    secret = "hf_zzzyyyxxx"
    id = run(cluster, seconds=600, gpus=3, env_from=["HF_TOKEN"], secrets={"HF_TOKEN": secret}, preemptible=True)
    cluster.until(id, lambda job: job["state"] == "RUNNING" and job["step"] == 3, "progress")
    cluster.eventually(lambda: all("secret length 12" in log(cluster, id, rank) for rank in range(3)), "secrets arrive")
    variables = [log(cluster, id, rank) for rank in range(3)]
    for rank, said in enumerate(variables):
        assert f'"RANK": "{rank}"' in said
        assert '"WORLD_SIZE": "3"' in said
    assert len({said.split('"MASTER_PORT": "')[1].split('"')[0] for said in variables}) == 1
    assert sorted(said.split('"LOCAL_RANK": "')[1][0] for said in variables) == ["0", "0", "1"]
    cluster.client.act(id, "signal", {"signal": "SIGUSR1"})
    cluster.eventually(lambda: all("USR1" in log(cluster, id, rank) for rank in range(3)), "the signal arrives")
    leaks = [file for file in cluster.state.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    assert leaks == [], "b51: the secret is in no file"
    assert secret not in str(cluster.job(id)) + str(cluster.events(id))
    cluster.client.act(id, "preempt")  # exits with 0 on SIGTERM, and is queued again all the same
    cluster.until(id, lambda job: job["attempt"] == 2 and job["state"] == "RUNNING", "its second attempt")
    assert cluster.job(id)["preemptions"] == 1
    cluster.client.act(id, "cancel")
    assert cluster.until_state(id, "CANCELLED")["ended_by"] == "admin"


def test_ends_arrays_and_dependencies(cluster):
    good, bad = run(cluster, 0, gpus=2), run(cluster, 7, gpus=1)
    child = run(cluster, 0, after={"ok": [good], "any": [bad]})
    orphan = run(cluster, 0, after=[bad])
    assert cluster.until_state(good, "COMPLETED")["exit_code"] == 0
    failed = cluster.until_state(bad, "FAILED")
    assert (failed["exit_code"], failed["reason"]["text"]) == (7, "the command ended with exit code 7")
    assert cluster.until_state(orphan, "CANCELLED")["reason"]["code"] == "DependencyFailed"
    assert cluster.until_state(child, "COMPLETED")
    limited = run(cluster, 0, 600, time_limit="1s")
    assert "time limit" in cluster.until_state(limited, "TIMEOUT")["reason"]["text"]
    first = run(cluster, 0, 0.2, array="3-5%1")
    tasks = [cluster.until_state(first + n, "COMPLETED") for n in range(3)]
    assert [task["task"] for task in tasks] == [3, 4, 5]
    assert '"JCT_ARRAY_TASK_ID": "5"' in log(cluster, first + 2)
    missing = cluster.client.call(
        "POST", "jobs", body={"job": {"name": "x", "command": ["no-such-program"], "workdir": "/"}}
    ).json()["id"]
    assert "cannot run 'no-such-program'" in cluster.until_state(missing, "FAILED")["reason"]["text"]


SCRIPT = f"""#!{sys.executable}
import os, sys, time
print("script", os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["JCT_GPUS_ON_NODE"], flush=True)
time.sleep(float(os.environ["SECONDS_TO_SLEEP"]))
sys.exit(int(os.environ["CODE"]) if os.environ["JCT_ATTEMPT"] == "1" else 0)
"""


def script(cluster: Cluster, code: int, seconds: float = 0.0, **fields) -> int:
    env = {"CODE": str(code), "SECONDS_TO_SLEEP": str(seconds)}
    job = {"name": "s", "script": SCRIPT, "workdir": str(cluster.state), "env": env, **fields}
    return int(cluster.client.call("POST", "jobs", body={"job": job}).json()["id"])


def test_a_script_a_node_and_what_its_exit_code_means(cluster):
    id = script(cluster, 3, gpus=3, processes="per_node", on_exit={"3": "requeue"}, retries={"max": 0, "backoff": 1})
    done = cluster.until_state(id, "COMPLETED")
    assert (done["attempt"], done["failures"]) == (2, 0)
    said = sorted(filter(None, (log(cluster, id, rank) for rank in range(3))))
    assert said == ["script 0 2 2\n", "script 1 2 1\n"], "one process a node; two ranks only hold their devices"
    failed = script(cluster, 4, gpus=2, processes="per_node", on_exit={"4": "fail"}, retries={"max": 3})
    assert cluster.until_state(failed, "FAILED")["attempt"] == 1, "for good"


def test_devices_beside_a_program_are_held_until_it_has_ended(cluster):
    id = script(cluster, 0, 600, gpus=3, processes="per_node")
    cluster.until_state(id, "RUNNING")
    cluster.client.act(id, "preempt")
    cluster.until(id, lambda job: job["attempt"] == 2 and job["state"] == "RUNNING", "its second attempt")
    cluster.client.act(id, "cancel")
    cluster.until_state(id, "CANCELLED")
    cluster.eventually(lambda: cluster.free_devices() == 3, "all devices come free")


def test_a_deadline_ends_what_waits_and_what_runs(cluster):
    moment = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    running = run(cluster, 0, 600, gpus=3, deadline=moment)
    waiting = run(cluster, 0, 0, gpus=3, deadline=moment)
    assert cluster.until_state(running, "DEADLINE")["attempt"] == 1
    assert cluster.until_state(waiting, "DEADLINE")["reason"]["text"] == "its deadline has passed"


CRASHES_WHEN_TOLD = """
import pathlib, sys, time
while not pathlib.Path("crash").exists():
    time.sleep(0.05)
pathlib.Path("crash").unlink()
sys.exit(9)
"""


def test_b31_preemptions_do_not_eat_retries_and_both_counters_are_shown(cluster):
    work = cluster.state / "work"
    (work / "crashing.py").write_text(CRASHES_WHEN_TOLD)
    job = {
        "name": "b31", "command": [sys.executable, "crashing.py"], "workdir": str(work), "gpus": 1,
        "retries": {"max": 1, "backoff": "1s"}, "preemptible": True,
    }  # fmt: skip
    id = int(cluster.client.call("POST", "jobs", body={"job": job}).json()["id"])

    def running(attempt: int) -> dict:
        return cluster.until(
            id, lambda job: (job["attempt"], job["state"]) == (attempt, "RUNNING"), f"attempt {attempt}"
        )

    for attempt in range(1, 6):
        running(attempt)
        cluster.client.act(id, "preempt")
    assert (running(6)["preemptions"], cluster.job(id)["failures"]) == (5, 0)
    (work / "crash").touch()
    retried = running(7)
    assert (retried["preemptions"], retried["failures"]) == (5, 1)
    (work / "crash").touch()
    failed = cluster.until_state(id, "FAILED")
    assert (failed["exit_code"], failed["preemptions"], failed["attempt"]) == (9, 5, 7)
    show = [sys.executable, "-c", "from scheduler.cli.main import main; main()", "show", str(id)]
    environment = {**os.environ, "JCT_URL": cluster.url, "JCT_TOKEN": str(cluster.token())}
    shown = subprocess.run(show, env=environment, capture_output=True, text=True, check=True).stdout
    assert "5 preemptions, 1 failure, 0 faults" in shown


def test_a_program_that_runs_leaves_its_shim_asleep(cluster):
    id = run(cluster, 0, 600, gpus=2)
    cluster.until_state(id, "RUNNING")
    shims = [pid for pid in cluster.processes_of(id) if "worker.shim" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert shims
    wakes = {pid: switches(pid) for pid in shims}
    for _ in range(40):
        cluster.job(id)  # some work for the daemon, while the shims have none
    assert all(switches(pid) - wakes[pid] < 20 for pid in shims), "a line that its program closed keeps them busy"
    cluster.client.act(id, "cancel")


def switches(pid: int) -> int:
    """How often the process has gone to sleep so far or was interrupted."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)
