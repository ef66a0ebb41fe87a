"""`jct plan`, `jct timeline` and `jct probe` as a person or a program calls them."""

import json
from pathlib import Path
from typing import Any

import pytest

from policies.cost import Memory
from policies.pricing import make_plan
from scheduler.api.views import plan_view
from scheduler.cli.main import run
from scheduler.cli.show import plan_line
from scheduler.cli.units import bytes_per_s, seconds, show_bytes, show_seconds, size_bytes

JOB = """\
apiVersion: v1
name: planned
entrypoint: package.module:function
workdir: /tmp
gpus: {min: 1, max: 4}
parallel: {global_batch: 16, staleness: STALENESS}
work: {total: 300 steps}
"""


def profile(path: Path, layers: int = 8, **more: Any) -> Path:
    rows = [
        {"name": f"l{i}", "forward_s": 0.01, "backward_s": 0.02, "output_bytes": 10**6, "activation_bytes": 10**8,
         "parameter_bytes": 10**8}
        for i in range(layers)
    ]  # fmt: skip
    path.write_text(json.dumps({"name": "even", "microbatch_size": 2, "layers": rows, **more}))
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert run([str(argument) for argument in arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run([str(argument) for argument in arguments]) == 2
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_plan_prints_a_menu_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = profile(tmp_path / "p.json")
    found = answer(
        capsys, "plan", "--profile", file, "--gpus", "1..4", "--bandwidth", "1GB/s", "--global-batch", 32, "--json"
    )
    assert [entry["gpus"] for entry in found["menu"]] == [1, 2, 3, 4]
    for entry in found["menu"]:
        assert entry["stages"][0]["layers"][0] == 0
        assert entry["stages"][-1]["layers"][1] == 8
        assert entry["microbatches"] * entry["microbatch_size"] == 32
        assert {rank for stage in entry["stages"] for rank in stage["ranks"]} == set(range(entry["gpus"]))
        assert len(entry["memory_bytes"]) == len(entry["stages"])
        assert 0 <= entry["bubble"] < 1
        assert entry["why"]
        assert entry["resize_cost_s"] > 0
        assert all(other["step_time_s"] >= entry["step_time_s"] - 1e-9 for other in entry["runners_up"])


def test_plan_tells_people_why_and_what_a_bigger_batch_would_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = profile(tmp_path / "p.json")
    assert run(["plan", "--profile", str(file), "--gpus", "4", "--replicas", "1", "--global-batch", "32"]) == 0
    text = capsys.readouterr().out
    assert "fastest of" in text
    assert "above the target of 10%; a global batch of 64 would make it" in text
    assert "Runners-up" in text


def test_a_model_is_planned_within_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(
        capsys, "plan", "--model", "llama-13b", "--gpus", "8", "--memory", "48GB", "--global-batch", 64, "--json"
    )
    assert max(found["menu"][0]["memory_bytes"]) <= 48e9


def test_half_precision_is_taken_only_where_nothing_else_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    common = ["plan", "--profile", profile(tmp_path / "p.json"), "--gpus", "2", "--json"]
    assert answer(capsys, *common)["menu"][0]["precision"] == "float32"
    found = answer(capsys, *common, "--memory", "1GB")["menu"][0]
    assert found["precision"] == "bfloat16"
    assert max(found["memory_bytes"]) <= 1e9


def test_other_ways_to_cut_are_never_faster(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parents[2] / "benchmarks" / "data" / "vgg16-profile.json"
    found = answer(
        capsys, "plan", "--profile", file, "--gpus", "4", "--bandwidth", "3GB/s", "--replicas", "1", "--json"
    )
    best = found["menu"][0]
    assert set(best["other_cuts_step_time_s"]) == {"uniform", "compute", "memory", "overlapped"}
    assert best["step_time_s"] <= min(best["other_cuts_step_time_s"].values()) + 1e-9


def test_a_micro_batch_that_does_not_fit_is_refused_with_a_smaller_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(profile(tmp_path / "p.json").read_text())["layers"]
    for row in rows:
        row |= {"activation_bytes": 4 * 10**9, "output_bytes": 4 * 10**9}
    (tmp_path / "big.json").write_text(json.dumps({"name": "big", "microbatch_size": 4, "layers": rows}))
    text = refusal(capsys, "plan", "--profile", tmp_path / "big.json", "--gpus", "2", "--memory", "8GB")
    assert "a micro-batch of 4 samples does not fit on 2 GPUs with 8 GB, even a single one; one of" in text


def test_bad_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = profile(tmp_path / "p.json")
    assert "nothing to plan" in refusal(capsys, "plan", "--gpus", "2")
    assert "unknown model 'gpt9'" in refusal(capsys, "plan", "--model", "gpt9", "--gpus", "2")
    assert "'12 parsecs' is not understood" in refusal(
        capsys, "plan", "--profile", file, "--gpus", "2", "--bandwidth", "12 parsecs"
    )
    assert "--gpus must be a count" in refusal(capsys, "plan", "--profile", file, "--gpus", "4..2")
    assert "RANK:FACTOR" in refusal(capsys, "plan", "--profile", file, "--gpus", "2", "--slow", "2")
    assert "cannot plan with 'magic'" in refusal(
        capsys, "plan", "--profile", file, "--gpus", "2", "--schedules", "magic"
    )
    (tmp_path / "bad.json").write_text('{"layers": [{"forward_s": -1, "backward_s": 1}]}')
    assert "layer 0: forward_s must be a number from 0" in refusal(
        capsys, "plan", "--profile", tmp_path / "bad.json", "--gpus", "1"
    )
    (tmp_path / "odd.json").write_text('{"layers": [{"forward_s": 1, "backward_s": 1, "colour": 3}]}')
    assert "unknown key 'colour'" in refusal(capsys, "plan", "--profile", tmp_path / "odd.json", "--gpus", "1")
    assert "unknown schedule 'nope'" in refusal(capsys, "timeline", "--schedule", "nope")
    assert "needs 2 factors" in refusal(capsys, "timeline", "--stages", "2", "--stage-scale", "1,2,3")


def test_repartition_is_never_worse_than_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = profile(tmp_path / "p.json")
    common = ["plan", "--profile", file, "--gpus", "4", "--replicas", "1", "--json"]
    (tmp_path / "running.json").write_text(json.dumps(answer(capsys, *common)))
    found = answer(capsys, *common, "--slow", "1:2", "--repartition", tmp_path / "running.json")["repartition"]
    assert found["after"]["step_time_s"] < found["before"]["step_time_s"]
    same = answer(capsys, *common, "--repartition", tmp_path / "running.json")["repartition"]
    assert same["after"]["step_time_s"] <= same["before"]["step_time_s"]


def test_repartition_keeps_what_saves_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tight = ["--gpus", "2", "--memory", "1.2GB", "--schedules", "gpipe", "--json"]
    common = ["plan", "--profile", profile(tmp_path / "p.json"), *tight]
    (tmp_path / "running.json").write_text(json.dumps(answer(capsys, *common)))
    moved = answer(capsys, *common, "--repartition", tmp_path / "running.json")["repartition"]
    assert all(moved[when][knob] for when in ("before", "after") for knob in ("recompute", "offload"))


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        (Memory(), "2 stages × 4 micro-batches of 2 samples, 1f1b, layers 3+3"),
        (
            Memory(recompute=True, offload=True),
            "2 stages × 4 micro-batches of 2 samples, 1f1b, layers 3+3, with recompute, optimizer in host memory",
        ),
    ],
)
def test_a_jobs_plan_is_told_with_what_saves_memory(memory: Memory, told: str) -> None:
    view = plan_view(make_plan((0, 3, 6), (4,), 2, "1f1b", memory=memory))
    assert view is not None
    assert plan_line(dict(view)) == told


def test_time_to_accuracy_needs_convergence_and_consent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"smoothness": 1.0, "gradient_second_moment": [1.0] * 8, "initial_gap": 1.0}
    known["target_gradient_norm_squared"] = 0.01
    bare, full = profile(tmp_path / "bare.json"), profile(tmp_path / "full.json", convergence=known)
    (tmp_path / "strict.yaml").write_text(JOB.replace("STALENESS", "forbid"))
    (tmp_path / "stale.yaml").write_text(JOB.replace("STALENESS", "allow"))
    wanted = ["--objective", "time-to-accuracy", "--gpus", "4"]
    assert "staleness: allow" in refusal(capsys, "plan", "--profile", full, *wanted)
    assert "staleness: allow" in refusal(capsys, "plan", tmp_path / "strict.yaml", "--profile", full, *wanted)
    assert "`convergence`" in refusal(capsys, "plan", tmp_path / "stale.yaml", "--profile", bare, *wanted)
    found = answer(capsys, "plan", tmp_path / "stale.yaml", "--profile", full, *wanted, "--json")["menu"][0]
    everything = [found, *found["runners_up"]]
    assert min(plan["time_to_accuracy_s"] for plan in everything) == found["time_to_accuracy_s"]
    assert {"async-1f1b", "2bw"} & {plan["schedule"] for plan in everything}


def test_probe_reports_a_slack_that_timing_confirms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(profile(tmp_path / "p.json", layers=4).read_text())["layers"]
    rows[2] |= {"forward_s": 0.004, "backward_s": 0.008}
    (tmp_path / "light.json").write_text(json.dumps({"name": "light", "layers": rows}))
    found = answer(capsys, "probe", tmp_path / "light.json", "--stage", 2, "--gpus", 4, "--json")
    assert found["layers"] == [2, 3]
    assert found["period_slack_s"] == pytest.approx(0.03 - 0.012)
    assert found["step_slack_s"] >= 0
    assert "stages 0 to 3" in refusal(capsys, "probe", tmp_path / "light.json", "--stage", 9, "--gpus", 4)


def test_timeline_writes_all_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(
        capsys, "timeline", "--schedule", "zbv", "--stages", 2, "--microbatches", 4, "--forward", "10ms",
        "--backward-input", "10ms", "--backward-weight", "10ms", "--json", "--svg", tmp_path / "a.svg",
        "--png", tmp_path / "a.png", "--trace", tmp_path / "a.json",
    )  # fmt: skip
    assert found["makespan_s"] == pytest.approx(0.01 * (4 * 6 + 1))
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert run(["timeline", "--stages", "2", "--microbatches", "2"]) == 0
    assert "Makespan 9 s" in capsys.readouterr().out


def test_a_job_file_is_drawn_as_it_would_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("staleness: STALENESS", "pipeline_stages: 4") + "profile: gpt2\n")
    found = answer(capsys, "timeline", tmp_path / "job.yaml", "--json")
    assert {action["rank"] for action in found["actions"]} == {0, 1, 2, 3}
    (tmp_path / "bare.yaml").write_text(JOB.replace(", staleness: STALENESS", ""))
    assert "nothing to plan" in refusal(capsys, "timeline", tmp_path / "bare.yaml")


def test_units_are_those_that_people_write() -> None:
    assert seconds("10us") == pytest.approx(1e-5)
    assert seconds("1.5") == 1.5
    assert size_bytes("80GB") == 80e9
    assert size_bytes("1GiB") == 2**30
    assert bytes_per_s("12GB/s") == 12e9
    assert bytes_per_s("100Gbit/s") == pytest.approx(12.5e9)
    assert show_seconds(0.0123) == "12.3 ms"
    assert show_bytes(1.25e9) == "1.25 GB"
