"""Checkpoints in a store that only fsspec reaches: saved, resumed on another shape, damaged, fenced."""

import json
from pathlib import Path

from gang import Site, curve, plan

from scheduler.protocol.messages import Cause


def test_a_job_resumes_from_a_url_on_another_shape(site: Site, tmp_path: Path) -> None:
    url = f"elsewhere:/{tmp_path / 'bucket'}"
    alone = site.launch(plan((0, 6)), site.spec(directory=None, arguments={"steps": 20}))
    alone.wait()
    first = site.launch(plan((0, 3, 6)), site.spec(entrypoint="elsewhere:job", directory=url, arguments={"steps": 11}))
    first.wait()
    assert first.pilot.saved == 11
    names = {path.name for path in (tmp_path / "bucket").iterdir()}
    assert names == {"layers", "step-11", "claim-1.2"}
    assert not list((tmp_path / "bucket").rglob("*.tmp"))
    second = site.launch(
        plan((0, 2, 4, 6)), site.spec(entrypoint="elsewhere:job", directory=url, arguments={"steps": 20})
    )
    second.wait()
    assert second.pilot.cause is Cause.FINISHED
    assert second.pilot.resumed_step == 11
    assert curve(first, second) == curve(alone)


def test_damage_at_a_url_is_found(site: Site, tmp_path: Path) -> None:
    url = f"elsewhere:/{tmp_path / 'bucket'}"
    spec = site.spec(entrypoint="elsewhere:job", directory=url, arguments={"steps": 5})
    site.launch(plan((0, 6)), spec).wait()
    entry = json.loads((tmp_path / "bucket" / "step-5" / "manifest.json").read_text())["layers"][0]
    path = tmp_path / "bucket" / "layers" / f"{entry['sha256']}.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    again = site.launch(plan((0, 6)), spec)
    again.wait()
    assert again.pilot.cause is Cause.CHECKPOINT_BROKEN
    assert "damaged" in again.pilot.message


def test_a_url_that_nobody_knows_is_the_job_files_fault(site: Site) -> None:
    launched = site.launch(plan((0, 6)), site.spec(directory="nosuch://bucket/folder"))
    launched.wait()
    assert launched.pilot.cause is Cause.BAD_SPEC
    assert "nosuch" in launched.pilot.message
