"""`jct policy serve`: one JSON line in, one out, and no line ends the service."""

import json
import subprocess
import sys
from typing import Any

import pytest

from policies.registry import ALLOCATORS, find_allocator
from scheduler.simulator.serving import answer

ROW = {"kind": "a", "per_node": [4], "plan": "p4", "step_time_s": 1.0, "restart_s": 10.0}
JOB = {
    "id": "x", "age_s": 0.0, "attained_gpu_s": 0.0, "remaining_steps": 100, "restarts": 0, "since_change_s": 0.0,
    "weight": 1, "min_devices": 1, "max_devices": 8, "placement": {}, "plan": None, "frozen": False,
    "menu": [ROW, ROW | {"per_node": [8], "plan": "p8", "step_time_s": 0.6}],
}  # fmt: skip
NODE = {"id": "n0", "kind": "a", "devices": 8, "free": 8}


def line(**changes: Any) -> str:
    return json.dumps({"v": 1, "now_s": 0.0, "nodes": [NODE], "jobs": [JOB]} | changes)


def serve(policy: str, *lines: str) -> list[dict[str, Any]]:
    code = "from scheduler.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "policy", "serve", "--policy", policy], input="\n".join(lines) + "\n",
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(answer) for answer in done.stdout.splitlines()]


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_every_policy_serves(policy: str) -> None:
    frozen = JOB | {"placement": {"n0": 4}, "plan": "p4", "frozen": True}
    first, second = serve(policy, line(), line(nodes=[NODE | {"free": 4}], jobs=[frozen]))
    (decision,) = first["decisions"]
    assert (decision["id"], decision["plan"]) in {("x", "p4"), ("x", "p8")}
    assert second == {"v": 1, "decisions": []}


def test_errors_are_answers_and_the_service_goes_on() -> None:
    over = JOB | {"placement": {"n0": 4}, "plan": "p4"}
    answers = serve(
        "jct", "junk", line(v=2), line(jobs=[JOB, JOB]), line(jobs=[over]), line(jobs=[JOB | {"weight": 0}]),
        line(jobs=[JOB | {"remaining_steps": None}]),
    )  # fmt: skip
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == ["not_json", "version", "invalid", "invalid", "invalid", None]
    assert all(answer["v"] == 1 for answer in answers)
    assert "n0" in answers[3]["error"]["message"]


@pytest.mark.parametrize(
    "odd", [{"per_node": []}, {"per_node": [8, 0]}, {"per_node": [8, -4]}, {"step_time_s": 0}, {"restart_s": -1}]
)
def test_rows_that_nobody_can_have_measured_are_refused_by_name(odd: dict[str, Any]) -> None:
    reply = json.loads(answer(line(jobs=[JOB | {"menu": [ROW | odd]}]), find_allocator("jct")))
    assert reply["error"]["code"] == "invalid"
    assert f"$.jobs[0].menu[0].{next(iter(odd))}" in reply["error"]["message"].replace("[...]", "")


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_rows_that_no_node_has_room_for_keep_nobody_waiting(policy: str) -> None:
    beyond = ROW | {"per_node": [8] * 8, "plan": "p64", "step_time_s": 0.01}
    asked = JOB | {"max_devices": 64, "remaining_steps": 1e6, "asked": 64, "menu": [*JOB["menu"], beyond]}
    (reply,) = serve(policy, line(jobs=[asked]))
    assert [decision["id"] for decision in reply["decisions"]] == ["x"]
