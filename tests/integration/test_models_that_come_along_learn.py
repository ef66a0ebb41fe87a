"""The built-in GPT learns real text, a probe measures it, and the examples run as they stand."""

from pathlib import Path

import pytest
import yaml
from gang import Site, curve, metrics, plan

from scheduler.protocol.messages import Cause

ROOT = Path(__file__).parents[2]
GPT = {"entrypoint": "worker.models.gpt_stdlib:pipeline_job"}
SMALL = {"width": 48, "blocks": 2, "context": 32, "steps": 50, "global_batch": 16, "validate_every": 25}


def test_a_small_gpt_learns_real_text_on_two_stages(site: Site) -> None:
    launched = site.launch(plan((0, 2, 4), size=4), site.spec(**GPT, arguments=SMALL, directory=None))
    launched.wait()
    first, last = launched.pilot.first_evaluation, launched.pilot.last_evaluation
    assert first is not None
    assert last is not None
    assert (first.step, last.step) == (0, 50)
    assert 5.0 < first.loss < 6.0, "bytes at random: ln 256 = 5.55"
    assert last.loss < 3.5
    assert len(curve(launched)) == 50


def test_a_probe_measures_every_layer_at_sizes_that_divide_the_batch(site: Site) -> None:
    probe = site.launch(None, site.spec(kind="probe", **GPT, arguments=SMALL))
    probe.wait()
    report = probe.pilot
    assert report.cause is Cause.PROBE_DONE
    assert (report.total_steps, report.global_batch) == (50, 16)
    assert [profile.microbatch_size for profile in report.profiles] == [1, 2, 4, 8]
    for profile in report.profiles:
        assert [layer.name for layer in profile.layers] == ["embedding", "block0", "block1", "head"]
        assert all(layer.forward_s > 0 and layer.backward_s > 0 for layer in profile.layers)
        assert profile.layers[1].output_bytes == profile.microbatch_size * 32 * 48 * 4
        assert profile.layers[0].parameter_bytes == (256 + 32) * 48 * 4
    activations = [profile.layers[1].activation_bytes for profile in report.profiles]
    assert activations == [activations[0] * 2**i for i in range(4)]
    train = site.launch(
        plan((0, 2, 4), size=4),
        site.spec(**GPT, arguments={**SMALL, "steps": 2}, fingerprint=report.fingerprint, directory=None),
    )
    train.wait()
    assert train.pilot.cause is Cause.FINISHED, "a probe's fingerprint is the training's"


def test_a_probe_tells_a_users_exception(site: Site) -> None:
    probe = site.launch(None, site.spec(kind="probe", entrypoint="awkward:raises"))
    probe.wait()
    assert probe.pilot.cause is Cause.USER_EXCEPTION
    assert "the dataset is not there" in probe.pilot.message


EXAMPLES = {
    "mlp.yaml": (60, plan((0, 3, 5), size=16)),
    "gpt-stdlib.yaml": (20, plan((0, 4, 8), size=8)),
    "digits.yaml": (60, plan((0, 2, 5), size=15)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_it_stands(site: Site, name: str) -> None:
    example = yaml.safe_load((ROOT / "examples" / name).read_text())
    steps, shape = EXAMPLES[name]
    arguments = {**example["arguments"], "steps": min(example["arguments"]["steps"], steps)}
    spec = site.spec(
        entrypoint=example["entrypoint"], arguments=arguments, workdir=str(ROOT / "examples"), directory=None
    )
    launched = site.launch(shape, spec)
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED, launched.reports
    losses = [line["validation_loss"] for line in metrics(launched) if "validation_loss" in line]
    assert losses[-1] < 0.7 * losses[0]
