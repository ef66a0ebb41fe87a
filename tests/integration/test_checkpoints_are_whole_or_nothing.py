"""A damaged checkpoint is found and passed over aloud; a failed save costs nothing; the fence keeps the late away."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gang import Site, curve, plan

from scheduler.protocol.messages import Cause
from worker.launcher import Launched

TWO = (0, 3, 6)


def finish(site: Site, shape=None, **spec) -> Launched:
    launched = site.launch(shape or plan(TWO), site.spec(**spec))
    launched.wait()
    launched.hang_up()
    return launched


@pytest.fixture
def trained(site: Site) -> Launched:
    """A finished run of 60 steps with checkpoints at 20, 40 (about) and 60 kept."""
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 60}, keep=3))
    for step in (15, 35):
        launched.wait(lambda it, step=step: len(it.reports) == 2 and (it.pilot.step or 0) >= step)
        launched.save()
        launched.wait(lambda it, step=step: (it.pilot.saved or 0) >= step)
    launched.wait()
    launched.hang_up()
    return launched


def steps(site: Site) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in site.checkpoints.glob("step-*"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def layer_files(site: Site, step: int) -> list[Path]:
    entries = json.loads((site.checkpoints / f"step-{step}" / "manifest.json").read_text())["layers"]
    return [site.checkpoints / "layers" / f"{entry['sha256']}.safetensors" for entry in entries]


@pytest.mark.parametrize(
    "damage",
    [
        lambda site, step: flip(layer_files(site, step)[0]),
        lambda site, step: truncate(layer_files(site, step)[-1]),
        lambda site, step: layer_files(site, step)[2].unlink(),
        lambda site, step: flip(site.checkpoints / f"step-{step}" / "manifest.json"),
        lambda site, step: truncate(site.checkpoints / f"step-{step}" / "manifest.json"),
    ],
    ids=["flipped byte", "truncated file", "missing file", "flipped manifest", "truncated manifest"],
)
def test_b25_the_newest_good_one_is_taken_and_the_loss_is_told(
    site: Site, trained: Launched, damage: Callable[[Site, int], None]
) -> None:
    damage(site, 60)
    good = steps(site)[-2]
    again = finish(site, plan((0, 6)), arguments={"steps": 60}, keep=3)
    assert again.pilot.resumed_step == good
    assert f"resumed from step {good}, {60 - good} steps lost" in again.pilot.message
    assert curve(again).items() <= curve(trained).items()
    assert finish(site, arguments={"steps": 60}).pilot.message == "", "the repaired checkpoint is good again"


def test_b25_none_good_is_never_a_silent_start_from_zero(site: Site, trained: Launched) -> None:
    for step in steps(site):
        flip(layer_files(site, step)[1])
    again = finish(site, arguments={"steps": 60})
    assert again.pilot.cause is Cause.CHECKPOINT_BROKEN
    assert "no checkpoint" in again.pilot.message
    assert "damaged" in again.pilot.message


def test_a_newer_version_is_not_passed_over(site: Site, trained: Launched) -> None:
    path = site.checkpoints / "step-60" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    again = finish(site, arguments={"steps": 60})
    assert again.pilot.cause is Cause.CHECKPOINT_BROKEN
    assert "version 99" in again.pilot.message


@pytest.mark.parametrize(
    ("arguments", "words"), [({"width": 24}, "another model"), ({"global_batch": 16}, "global batch 8")]
)
def test_a_checkpoint_of_another_job_is_refused(site: Site, trained: Launched, arguments: dict, words: str) -> None:
    shape = plan(TWO, size=arguments.get("global_batch", 8) // 4)
    again = finish(site, shape, arguments={"steps": 60, **arguments})
    assert again.pilot.cause is Cause.CHECKPOINT_BROKEN
    assert words in again.pilot.message


def test_only_the_newest_are_kept_and_no_file_is_left_over(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 100}, keep=2))
    for step in (10, 20, 30, 40):
        launched.wait(lambda it, step=step: len(it.reports) == 2 and (it.pilot.step or 0) >= step)
        launched.save()
        launched.wait(lambda it, step=step: (it.pilot.saved or 0) >= step)
    launched.wait()
    kept = steps(site)
    assert len(kept) == 2
    assert kept[-1] == 100
    named = {path for step in kept for path in layer_files(site, step)}
    assert set((site.checkpoints / "layers").iterdir()) == named


def test_periodic_saves_come_by_themselves(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 10**6}, every_s=0.05))
    launched.wait(lambda it: len(it.reports) == 2 and it.pilot.saved is not None)
    first = launched.pilot.saved or 0
    launched.wait(lambda it: (it.pilot.saved or 0) > first)
    launched.stop(grace_s=60)
    launched.wait()


def test_a_later_attempt_fences_the_earlier_one(site: Site) -> None:
    late = site.launch(plan(TWO), site.spec(arguments={"steps": 10**6}))
    late.wait(lambda it: len(it.reports) == 2 and (it.pilot.step or 0) >= 3)
    (site.checkpoints / "claim-1.7").write_bytes(b"another attempt")
    late.save()
    late.wait()
    assert Cause.FENCED in {report.cause for report in late.reports.values()}
    assert not list(site.checkpoints.glob("step-*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_b26_a_full_disk_costs_neither_the_job_nor_the_older_checkpoint(site: Site, small_disk: Path) -> None:
    directory = small_disk / "checkpoints"
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 10**6, "width": 64}, directory=directory, keep=5))
    launched.wait(lambda it: len(it.reports) == 2 and (it.pilot.step or 0) >= 3)
    saves = 0
    while "No space left" not in launched.pilot.message and saves < 20:
        newest = launched.pilot.saved
        launched.save()
        launched.wait(lambda it, old=newest: it.pilot.saved != old or "No space left" in it.pilot.message)
        saves += 1
    newest = launched.pilot.saved
    assert f"the newest is of step {newest}" in launched.pilot.message
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) > step)
    launched.stop(grace_s=60)
    launched.wait()
    assert launched.pilot.cause is Cause.STOPPED
    assert "stopped without a checkpoint of the last" in launched.pilot.message
    again = site.launch(plan((0, 6)), site.spec(arguments={"steps": 10**6, "width": 64}, directory=directory))
    again.wait(lambda it: len(it.reports) == 1 and (it.pilot.step or 0) > (newest or 0))
    assert again.pilot.resumed_step == newest


def test_a_directory_that_cannot_be_written_is_reported_and_training_goes_on(site: Site) -> None:
    site.checkpoints.write_text("a file where the directory should be")
    launched = finish(site, arguments={"steps": 10})
    assert launched.pilot.cause is Cause.FINISHED
    assert launched.pilot.saved is None
    assert "cannot be written" in launched.pilot.message or "failed" in launched.pilot.message


def test_resume_none_starts_fresh_but_keeps_what_the_job_itself_saved(site: Site, trained: Launched) -> None:
    os.rename(site.folder / "attempts", site.folder / "other")
    (site.folder / "attempts").mkdir()
    site_job_two = site.folder / "attempts" / "2.1"
    fresh = Launched(site_job_two, site.spec(arguments={"steps": 70}, resume="none"), plan(TWO), site.shims.start)
    site.launched.append(fresh)
    fresh.wait()
    assert fresh.pilot.resumed_step == 0
    again = Launched(
        site.folder / "attempts" / "2.2", site.spec(arguments={"steps": 80}, resume="none"), plan(TWO), site.shims.start
    )
    site.launched.append(again)
    again.wait()
    assert again.pilot.resumed_step == 70
