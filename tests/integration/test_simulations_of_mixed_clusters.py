"""`jct simulate` with nodes of several sizes and kinds: every job runs where its rows were measured, or is refused."""

import json
from pathlib import Path

import pytest
from test_simulations_can_be_audited import DATA, jct, workload

PHILLY = "submit_s,num_gpus,duration_s,vc\n0,4,500,a\n10,8,900,b\n20,1,100,a\n30,16,400,b\n"


def test_rigid_jobs_take_whole_nodes_of_either_size(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(PHILLY)
    log = tmp_path / "log.jsonl"
    done = jct("simulate", tmp_path / "jobs.csv", "--nodes", "2x4:a100,2x8:v100", "--decisions", log)
    assert done.returncode == 0, done.stderr
    starts = [change for line in log.read_text().splitlines() if (change := json.loads(line))["placement"]]
    assert next(change["placement"] for change in starts if change["job"] == "job-3") == {"2": 8, "3": 8}


def test_each_kind_has_profiles_of_its_own(tmp_path: Path) -> None:
    rows = workload(tmp_path / "w.csv", count=12)
    for kind, factor in (("a100", 1.0), ("v100", 3.0)):
        (tmp_path / kind).mkdir()
        for file in DATA.glob("*-placements.csv"):
            lines = [line.split(",") for line in file.read_text().splitlines()]
            slower = [[*line[:2], str(float(line[2] or 0) * factor)] for line in lines[1:]]
            text = "\n".join(",".join(line) for line in [lines[0][:3], *slower])
            (tmp_path / kind / file.name).write_text(text + "\n")
    done = jct("simulate", tmp_path / "w.csv", "--profiles", tmp_path, "--nodes", "8x8:a100,4x4:v100", "--json",
               "--policy", "jct,goodput", "--noise", "0.2", "--svg", tmp_path / "chart.svg")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["jct"]["jcts_s"]) == {row["name"] for row in rows}
    for found in told.values():
        assert found["avg_jct_s"] >= found["lower_bound_s"]
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("nodes", ["1x8", "8x4", "2x8:a100,1x8:v100"])
def test_a_job_that_fits_nowhere_is_named_instead_of_waiting_for_ever(nodes: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(PHILLY.replace("16", "40"))
    done = jct("simulate", tmp_path / "jobs.csv", "--nodes", nodes)
    assert done.returncode == 2
    assert "job-3 fits nowhere" in " ".join(done.stderr.split())
