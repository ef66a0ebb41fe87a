"""The shim outlives agents: the next one finds it by its folder, and everything that is so."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from gang import Site, curve, plan

from scheduler.protocol.messages import Cause, Phase
from worker import processes
from worker.launcher import Launched, start_shim

TWO = (0, 3, 6)


def training(it: Launched) -> bool:
    return len(it.reports) == it.size and (it.pilot.step or 0) >= 3


def test_a_new_connection_hears_everything_and_members_never_notice(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 150}))
    launched.wait(training)
    before, seen = launched.hello, dict(launched.reports)
    launched.hang_up()
    launched.reports = {}
    launched.connect()
    assert launched.hello == msgspec.structs.replace(before, members=(0, 1))
    launched.wait(lambda it: len(it.reports) == 2)
    assert all(launched.reports[member].seq >= seen[member].seq for member in seen)
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.FINISHED}
    assert set(curve(launched)) == set(range(1, 151))


def test_a_spawn_for_a_member_that_exists_starts_nothing(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="awkward:slow"))
    launched.wait(training)
    assert launched.hello is not None
    children = {process.pid for process in processes.descendants(launched.hello.pid)}
    for member, target in launched.targets.items():
        launched._spawn(member, target)
    step = launched.pilot.step or 0
    launched.wait(lambda it: (it.pilot.step or 0) > step)
    assert {process.pid for process in processes.descendants(launched.hello.pid)} == children
    launched.stop(grace_s=0)
    launched.wait()


def test_identity_is_durable_and_the_folder_is_locked(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="awkward:slow", nonce="abc"))
    assert launched.hello is not None
    identity = json.loads((launched.folder / "shim.json").read_text())
    own = processes.stat(launched.hello.pid)
    assert own is not None
    assert identity["start_ticks"] == own.start_ticks
    assert (identity["pid"], identity["nonce"], identity["boot"]) == (own.pid, "abc", processes.boot_id())
    folder = os.open(launched.folder, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)
    second = subprocess.run(
        [sys.executable, "-P", "-m", "worker.shim", "--folder", str(launched.folder)], capture_output=True, text=True
    )
    assert second.returncode == 73
    assert "another one" in second.stderr
    launched.stop(grace_s=0)
    launched.wait()


def test_the_command_line_starts_it_and_a_long_path_is_no_obstacle(site: Site) -> None:
    site.folder = site.folder / ("deep" * 30)
    launched = site.launch(plan((0, 6)), site.spec(arguments={"steps": 3}), start=start_shim)
    launched.wait()
    launched.hang_up()
    assert {report.cause for report in launched.reports.values()} == {Cause.FINISHED}
    assert isinstance(launched.shim, subprocess.Popen)
    assert launched.shim.wait(30) == 0


def test_variables_that_a_fork_cannot_honour_start_members_cold(site: Site) -> None:
    spec = site.spec(arguments={"steps": 3}, env={"OMP_NUM_THREADS": "1", "MARK": "x"})
    launched = site.launch(plan((0, 6)), spec)
    launched.wait(lambda it: len(it.reports) == 1 and it.pilot.phase not in (Phase.SPAWNING, Phase.IMPORTING))
    assert launched.hello is not None
    (member,) = [
        process.pid
        for process in processes.descendants(launched.hello.pid)
        if b"worker.member" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]
    variables = Path(f"/proc/{member}/environ").read_bytes().split(b"\0")
    assert {b"MARK=x", b"JCT_NONCE=" + spec.nonce.encode(), b"RANK=0"} <= set(variables)
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED


def test_a_spare_becomes_an_attempts_shim(site: Site) -> None:
    command = [sys.executable, "-P", "-m", "worker.shim", "--spare"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as spare:
        assert spare.stdin is not None
        assert spare.stdout is not None
        assert spare.stdout.readline() == "ready\n"

        def order(folder: Path) -> None:
            spare.stdin.write(json.dumps(["--folder", str(folder)]) + "\n")
            spare.stdin.flush()

        launched = site.launch(plan((0, 6)), site.spec(arguments={"steps": 3}), start=order)
        assert launched.hello is not None
        assert launched.hello.pid == spare.pid
        launched.wait()
        launched.hang_up()
        assert spare.wait(30) == 0
    assert launched.pilot.cause is Cause.FINISHED


def test_a_spare_that_nobody_wants_ends(site: Site) -> None:
    command = [sys.executable, "-P", "-m", "worker.shim", "--spare"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
