"""`jct-agent predict` and `jct-agent calibrate` as processes of their own."""

import json
import math
import os
import subprocess
import sys

import psutil
import pytest
from forests import model

from agent.forest import file
from agent.forest.model import Hardware
from agent.forest.schema import NODE

TIMEOUT_S = 280


def agent(*arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "agent.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def trained(tmp_path):
    path = tmp_path / "model.npz"
    file.write(path, model())
    return path


@pytest.fixture
def features(tmp_path):
    path = tmp_path / "features.json"
    path.write_text(json.dumps({"own_wait_percent": 60.0, "loopback_bytes_per_s": 1e6, "busy_percent": None}))
    return path


def test_a_prediction_has_interval_confidence_and_the_top_features_of_its_paths(trained, features):
    code, out, err = agent("predict", "--features", features, "--model", trained, "--json")
    found = json.loads(out)
    assert (code, err, found["fallback"]) == (0, "", "")
    low, high = found["interval"]
    assert 1.0 <= low <= found["slowdown"] <= high
    assert 0.0 < found["confidence"] < 1.0
    assert found["path"][0]["feature"] == "own_wait_percent"
    assert "busy_percent" in found["missing"]


def test_for_people_it_fits_80_columns(trained, features):
    code, out, _ = agent("predict", "--features", features, "--model", trained)
    assert code == 0
    assert out.startswith("slowdown    2.")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("known", "said"), [((), "0.00: below 0.5, so the running agent would not follow it"), (NODE.names, "1.00")]
)
def test_of_a_prediction_that_an_agent_would_not_follow_it_says_so(tmp_path, trained, known, said):
    medians = dict(zip(NODE.names, map(float, file.read(trained).medians), strict=True))
    values = {name: medians[name] for name in known if math.isfinite(medians[name])}
    (tmp_path / "features.json").write_text(json.dumps(values))
    code, out, _ = agent("predict", "--features", tmp_path / "features.json", "--model", trained)
    assert (code, out.splitlines()[1]) == (0, f"confidence  {said}")
    assert max(map(len, out.splitlines())) <= 80


def test_b59_without_a_model_it_says_so_and_prints_what_stands_in(tmp_path, features):
    (tmp_path / "model.npz").write_bytes(b"PK no")
    code, out, err = agent("predict", "--features", features, "--model", tmp_path / "model.npz", "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["slowdown"], found["confidence"]) == (1.0, 0.0)
    assert "no model file" in found["fallback"]
    assert "no model, no prediction" in err


@pytest.mark.parametrize("text", ["[1]", '{"busy_percent": "much"}', "{", ""])
def test_features_that_are_none_are_bad_usage(tmp_path, trained, text):
    (tmp_path / "bad.json").write_text(text)
    code, out, err = agent("predict", "--features", tmp_path / "bad.json", "--model", trained)
    assert (code, out) == (2, "")
    assert "no JSON object of numbers and nulls" in err


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"own_wait_percnt": 1.0}, "has no feature 'own_wait_percnt' (did you mean 'own_wait_percent'?)"),
        ({"colour": 1.0, "busy_percent": 2.0}, "has no feature 'colour'\n  its features: busy_percent, memory_busy"),
        ({f"name{at}": None for at in range(9)}, "'name4' and 4 more"),
    ],
)
def test_a_feature_that_is_none_is_named_with_the_nearest_that_is_one(tmp_path, trained, names, said):
    """A misspelt one would count as missing."""
    (tmp_path / "features.json").write_text(json.dumps(names))
    code, out, err = agent("predict", "--features", tmp_path / "features.json", "--model", trained)
    assert (code, out) == (2, "")
    assert said in err


def test_files_that_are_not_there_or_are_folders_are_told_as_such(tmp_path, trained, features):
    for path, said in ((tmp_path / "none.json", "there is no such file"), (tmp_path, "cannot be read: Is a directory")):
        code, out, err = agent("predict", "--features", path, "--model", trained)
        assert (code, out) == (2, "")
        assert err == f"jct-agent predict: {path}{':' if 'no such' in said else ''} {said}\n"
    for path, said in ((tmp_path / "none.npz", "there is no such file"), (tmp_path, "it is no plain file")):
        code, _, err = agent("predict", "--features", features, "--model", path)
        assert code == 1
        assert said in err


def test_bad_options_of_a_calibration():
    for arguments in (["--minutes", "0"], ["--minutes", "soon"], ["--stages", "1"], []):
        code, _, err = agent("calibrate", "--out", "/nonexistent", *arguments) if arguments else agent("calibrate")
        assert code == 2
        assert "usage: jct-agent calibrate" in err


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a pipeline of two stages needs two cores")
def test_a_quick_calibration_measures_trains_evaluates_and_keeps_a_model(tmp_path):
    """What it finds depends on what else the machine does; that everything is there does not."""
    code, out, err = agent("calibrate", "--out", tmp_path, "--quick", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert {one["split"] for one in report["evaluations"]} == {"kinds", "batch", "both", "random"}
    assert set(report["importances"]) == set(NODE.names)
    assert report["rows"] > 100
    assert report["leftOut"] == {} or "link" in report["leftOut"]
    found = file.read(tmp_path / "model.npz", NODE, Hardware("cpu", f"{os.cpu_count()} cores"))
    assert found.predict({}).missing == NODE.names
    assert (tmp_path / "evaluation.svg").read_text().lstrip().startswith("<?xml")
    assert json.loads((tmp_path / "evaluation.json").read_text()) == report


BENCH = """
import os, sys, time
from agent.forest.workbench import Disturbance, disturbed, pipeline
with pipeline([0, 0], 16) as job, disturbed([Disturbance("compute", 0.1), Disturbance("loopback", 0.1)]):
    while len(job.steps) < 4:
        time.sleep(0.01)
    print("running", flush=True)
    time.sleep(1000)
"""


def test_a_calibration_that_is_killed_leaves_no_process_behind():
    """Neither the pipeline nor what disturbs it may go on without it."""
    process = subprocess.Popen([sys.executable, "-c", BENCH], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 1 + 2 + 2
    process.kill()
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
