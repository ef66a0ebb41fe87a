"""`jct simulate` says of a file that cannot be played what is wrong and where, before it simulates anything."""

from pathlib import Path

import pytest
from test_simulations_can_be_audited import jct

from scheduler.simulator.exported import read_export
from scheduler.simulator.workload import BadWorkload, Nodes, read_workload

NODES = [Nodes(2, 2)]
RUBICK = "name,submission_time,application,num_gpus,steps\n"
PHILLY = "submit_s,num_gpus,duration_s\n"


def read(folder: Path, text: str, placements: str = "1,1.0,ga\n", nodes: list[Nodes] = NODES) -> object:
    (folder / "x-placements.csv").write_text(f"placement,iter_time,exec_plan\n{placements}")
    (folder / "jobs.csv").write_text(text)
    return read_workload(folder / "jobs.csv", folder, nodes, 10.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{RUBICK}a,0,x,1,many\n", "job 1: steps is 'many'"),
        (f"{RUBICK}a,0,x,1,-1\n", "job 1: steps is '-1'"),
        (f"{RUBICK}a,0,x,1,inf\n", "job 1: steps is 'inf'"),
        (f"{RUBICK}a,0,x,1\n", "job 1: steps is None"),
        (f"{RUBICK}a,0,x,1,5\nb,nan,x,1,5\n", "job 2: submission_time is 'nan'"),
        (f"{RUBICK}a,0,x,1,5\na,9,x,1,5\n", "job 2: another job is named 'a' too"),
        (f"{PHILLY}0,0,10\n", "job 1: num_gpus is '0'"),
        (f"{PHILLY}0,1.5,10\n", "job 1: num_gpus is '1.5'"),
        (f"{PHILLY}0,1,\n", "job 1: duration_s is ''"),
    ],
)
def test_a_list_of_jobs_names_the_job_and_the_column(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadWorkload, match=said):
        read(tmp_path, text)


def test_moments_may_count_from_1970(tmp_path: Path) -> None:
    assert read(tmp_path, f"{PHILLY}1700000000,1,10\n").jobs[0].submit_s == 1.7e9


def test_an_arrangement_for_which_the_nodes_stand_in_another_order_fits_nowhere(tmp_path: Path) -> None:
    """Else the job would wait, and the simulation go on, for ever."""
    nodes = [Nodes(1, 4), Nodes(1, 2), Nodes(1, 4), Nodes(1, 2)]
    with pytest.raises(BadWorkload, match="job a fits nowhere"):
        read(tmp_path, f"{RUBICK}a,0,x,12,5\n", "4422,1.0,ga\n", nodes)


@pytest.mark.parametrize(
    "row",
    ['{"job":1,"submitted":"2026-01-01T00:00:00Z","steps":5,"model":"m","runs":[{"per_node":[1],"kind":"gpu"}]}', "{}"],
)
def test_an_export_that_was_changed_is_refused(tmp_path: Path, row: str) -> None:
    (tmp_path / "export.jsonl").write_text(f"{row}\n")
    with pytest.raises(BadWorkload, match="no export of `jct history`"):
        read_export(tmp_path / "export.jsonl", {"gpu": 4})


@pytest.mark.parametrize("option", ["--svg", "--decisions"])
def test_where_results_cannot_be_written_nothing_is_simulated(tmp_path: Path, option: str) -> None:
    (tmp_path / "jobs.csv").write_text(f"{PHILLY}0,1,10\n")
    done = jct("simulate", tmp_path / "jobs.csv", "--nodes", "2x2", option, tmp_path / "none" / "file")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no folder that may be written" in " ".join(done.stderr.split())
