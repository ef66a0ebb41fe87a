"""Convergence figures come from the training itself, on any number of stages, and change nothing of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gang import JOBS, Site, curve, plan
from jobs.quadratic import SMOOTHNESS

from policies.model.profile_document import profile_document
from scheduler.protocol.messages import Cause

SHAPES = {
    "one stage": plan((0, 2), size=2),
    "two stages": plan((0, 1, 2), size=2),
    "two replicas": plan((0, 2), size=2, shares=(2, 2)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_smoothness_of_a_known_quadratic_is_found_within_five_percent(site: Site, name: str) -> None:
    spec = site.spec(entrypoint="quadratic:job", directory=None, measure_after=20)
    launched = site.launch(SHAPES[name], spec)
    launched.wait()
    found = json.loads((launched.folder / "convergence.json").read_text())
    assert abs(found["smoothness"] - SMOOTHNESS) < 0.05 * SMOOTHNESS
    first, second = found["gradient_second_moment"]
    assert first == second > 0, "both layers have the same gradient"
    assert found["gradient_noise_scale"] > 0
    assert found["initial_gap"] > 0


def test_training_is_the_same_with_and_without(site: Site) -> None:
    arguments = {"steps": 12}
    curves = []
    for after in (None, 3):
        spec = site.spec(directory=None, arguments=arguments, measure_after=after)
        launched = site.launch(plan((0, 3, 6)), spec)
        launched.wait()
        curves.append(curve(launched))
        assert not (launched.folder / "convergence.json").exists(), "none before 100 steps"
    assert curves[0] == curves[1] != {}


def test_a_schedule_that_splits_its_backward_is_refused(site: Site) -> None:
    spec = site.spec(entrypoint="quadratic:job", directory=None, measure_after=20)
    launched = site.launch(plan((0, 1, 2), size=2, schedule="zb-h1"), spec)
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.NOT_SUPPORTED}


def test_jct_train_writes_the_figures_into_a_profile(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"name": "q", "entrypoint": "quadratic:job", "workdir": str(JOBS)}))
    out = tmp_path / "profile.json"
    command = [str(Path(sys.executable).parent / "jct"), "train", str(job), "--stages", "2", "--microbatches", "4"]
    done = subprocess.run(
        [*command, "--profile", str(out), "--measure-after", "20"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document = profile_document(json.loads(out.read_text()), "q")
    assert document.convergence is not None
    assert len(document.profile.layers) == 2
    command += ["--steps", "50", "--profile", str(out)]
    few = subprocess.run(command, capture_output=True, text=True, check=False)
    assert few.returncode == 2
    assert "needs 100 steps after the first 50" in few.stderr
