"""`jct up` ends with its daemon, its agent or its own kill -9; jobs go on, and the next `jct up` finds them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from cluster import PATIENCE_S, Cluster

from scheduler.cli import exits
from scheduler.cli.client import Client

JCT = Path(sys.executable).with_name("jct")


class Up(Cluster):
    """A cluster that `jct up` has started, and tests only look at."""

    def begun(self, config: Path) -> "Up":
        facts = json.loads((self.daemon_folder / "daemon.json").read_text())
        self.client = Client(facts["url"], (config / "jctd" / "token").read_text().strip())
        self.eventually(lambda: self.nodes_up() == ["a"], "the agent registers")
        return self


@contextmanager
def up(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", Up]]:
    command = [JCT, "up", "--state", folder / "state", "--port", "0", "--agents-port", "0", "--devices", "cpu:2"]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
    with subprocess.Popen(
        [*command, "--node", "a"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("jctd listens")
            yield process, Up(folder / "state").begun(folder / "config")
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def programs(process: "subprocess.Popen[str]") -> dict[str, psutil.Process]:
    """The daemon and the agent."""
    found = psutil.Process(process.pid).children()
    return {"jctd" if "scheduler.daemon" in one.cmdline() else "agent": one for one in found}


@pytest.mark.parametrize("killed", ["jctd", "agent", "jct up"])
def test_what_is_killed_takes_the_rest_along_and_jobs_go_on(tmp_path: Path, killed: str) -> None:
    with up(tmp_path) as (first, cluster):
        job = cluster.submit(work={"total": "100000000 steps"}, gpus=2)
        attempt = cluster.until_state(job, "RUNNING")["attempt"]
        ours = programs(first)
        assert ours.keys() == {"jctd", "agent"}
        pids = [one.pid for one in ours.values()]
        if killed == "jct up":
            first.kill()
        else:
            ours[killed].kill()
        _, said = first.communicate(timeout=PATIENCE_S)
        if killed != "jct up":
            assert first.returncode == exits.UNREACHABLE
            assert "was ended by signal 9" in said
            assert "running jobs go on, and `jct up` finds them again" in said
        cluster.eventually(lambda: not any(map(psutil.pid_exists, pids)), "daemon and agent are gone")
        assert cluster.members(job).keys() == {0, 1}
    with up(tmp_path) as (_, cluster):
        seen = cluster.until_state(job, "RUNNING")
        assert seen["attempt"] == attempt
        cluster.client.act(job, "cancel")
        cluster.until(job, lambda seen: seen["result"] is not None, "its end")
    assert cluster.strays() == []


def test_the_end_of_its_terminal_stops_it_in_order(tmp_path: Path) -> None:
    with up(tmp_path) as (process, _):
        ours = programs(process)
        process.send_signal(signal.SIGHUP)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "Running jobs go on" in said
        assert not any(one.is_running() for one in ours.values())
