"""`jct simulate` on a public workload: what its log of decisions says is all true, and it meets its figures."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from audit import replay

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "rubick"


def jct(*arguments: object) -> subprocess.CompletedProcess[str]:
    code = "from scheduler.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def workload(path: Path, *, first: int = 0, count: int | None = None) -> list[dict[str, str]]:
    """Some jobs of the workload, written to `path`."""
    with (DATA / "workload-base.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["submission_time"]))
    rows = rows[first : None if count is None else first + count]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.mark.parametrize("policy", ["jct", "srtf", "las", "fifo", "goodput", "slope"])
@pytest.mark.parametrize("remaining", ["exact", "unknown"])
def test_a_replay_of_the_log_finds_the_same_times(policy: str, remaining: str, tmp_path: Path) -> None:
    rows = workload(tmp_path / "w.csv", first=60, count=60)
    log = tmp_path / "decisions.jsonl"
    done = jct("simulate", tmp_path / "w.csv", "--profiles", DATA, "--policy", policy, "--remaining", remaining,
               "--json", "--decisions", log, "--svg", tmp_path / "chart.svg")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)[policy]
    changes = [json.loads(line) for line in log.read_text().splitlines()]
    found = replay(rows, DATA, changes, nodes=8, per_node=8, round_s=60.0, restart_s=260.0)
    assert told["jcts_s"] == pytest.approx(found, abs=0.1)
    assert told["jobs"] == len(found) == 60
    assert told["avg_jct_s"] == pytest.approx(sum(found.values()) / 60)
    assert told["avg_jct_s"] >= told["lower_bound_s"]
    starts = sum(bool(change["placement"]) for change in changes)
    assert told["restarts_per_job"] == pytest.approx(starts / 60 - 1)
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")


def test_jct_meets_its_figures_on_the_whole_workload(tmp_path: Path) -> None:
    done = jct("simulate", DATA / "workload-base.csv", "--profiles", DATA, "--policy", "jct,srtf,las", "--json")
    told = json.loads(done.stdout)
    ours = told["jct"]
    assert ours["avg_jct_s"] <= 1_200
    assert ours["p99_jct_s"] <= 15_000
    assert ours["makespan_s"] <= 68_000
    assert ours["restarts_per_job"] <= 1.0
    assert ours["avg_jct_s"] < told["srtf"]["avg_jct_s"] < told["las"]["avg_jct_s"]


@pytest.mark.long
def test_jct_beats_las_without_knowing_remaining_work() -> None:
    done = jct("simulate", DATA / "workload-base.csv", "--profiles", DATA, "--policy", "jct,las", "--json",
               "--remaining", "unknown")  # fmt: skip
    ours, las = (json.loads(done.stdout)[name] for name in ("jct", "las"))
    for figure, rubick in (("avg_jct_s", 7_490), ("p90_jct_s", 31_356), ("p99_jct_s", 61_092)):
        assert ours[figure] < min(las[figure], rubick)


@pytest.mark.long
@pytest.mark.parametrize("error", [0.1, 0.3])
def test_jct_degrades_gently_with_wrong_estimates(error: float) -> None:
    done = jct("simulate", DATA / "workload-base.csv", "--profiles", DATA, "--policy", "jct,las", "--json",
               "--noise", error)  # fmt: skip
    told = json.loads(done.stdout)
    assert told["jct"]["avg_jct_s"] < told["las"]["avg_jct_s"]


def test_the_same_input_gives_the_same_decisions(tmp_path: Path) -> None:
    workload(tmp_path / "w.csv", count=80)
    logs = []
    for number in range(2):
        log = tmp_path / f"{number}.jsonl"
        jct("simulate", tmp_path / "w.csv", "--profiles", DATA, "--noise", "0.3", "--decisions", log)
        logs.append(log.read_text())
    assert logs[0] == logs[1] != ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--nodes", "8by8"), "write nodes x GPUs"),
        (("--policy", "magic"), "unknown policy 'magic'"),
        ((), "--profiles"),
        (("--profiles", "/nowhere"), "no measured placements"),
    ],
)
def test_bad_input_is_one_clear_message(arguments: tuple[str, ...], told: str) -> None:
    done = jct("simulate", DATA / "workload-base.csv", *arguments)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
