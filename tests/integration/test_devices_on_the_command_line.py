"""`jct gpus` and `jct top` at 80 columns: what is measured, and why something is not."""

import json

import msgspec
import pytest

from scheduler.cli.client import Client
from scheduler.cli.main import run
from scheduler.core.events import NodeHeard
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.telemetry import DeviceSample, InterfaceSample, Process, Telemetry

GIB = 2.0**30
NONE = {"power_w": "not supported here", "temperature_c": "not supported here"}
VALUES = {
    "busy_percent": 97.6, "sm_active_percent": 62.0, "memory_used_bytes": 61 * GIB, "memory_total_bytes": 141 * GIB,
    "power_w": 651.7, "temperature_c": 71.0, "pcie_tx_bytes_per_s": 2.3e9, "pcie_rx_bytes_per_s": 1e8,
}  # fmt: skip
SAMPLE = Telemetry(
    number=3,
    devices=(
        DeviceSample(id="n0-0", age_s=0.5, values=VALUES, throttled=("power cap", "idle"),
                     processes=(Process(pid=4711, whose="other", name="python3"),),
                     slowdown=Slowdown(device="n0-0", ratio=1.23, low=1.1, high=1.4, confidence=0.8,
                                       source=Source.FOREST, contested=True)),
        DeviceSample(id="n0-1", age_s=0.5, values=VALUES | dict.fromkeys(NONE), missing=NONE),
    ),
    interfaces=(
        InterfaceSample(name="lo", kind="loopback", up=True, values={"rx_bytes_per_s": 5e8, "tx_bytes_per_s": 5e8}),
        InterfaceSample(name="eth0", kind="physical", up=True, values={"rx_bytes_per_s": 1.2e9, "tx_bytes_per_s": 9e6}),
    ),
    host={"load_1m": 2.5, "busy_percent": 55.0, "steal_percent": 0.0, "memory_used_bytes": 16 * GIB,
          "memory_total_bytes": 256 * GIB, "tcp_retransmits_per_s": 3.0},
    late=2,
)  # fmt: skip

GPUS = """\
GPU  DEVICE KIND STATE UTIL  MEMORY POWER TEMP SLOWED HELD BY NOTE
n0/0 n0-0   fake held   98% 61/141G  652W  71C  1.23x job 1   slowed 1.23x by a…
n0/1 n0-1   fake held   98% 61/141G     -    -      - job 1   power, temp: not …
n1/0 n1-0   fake free     -       -     -    -      - -       not measured yet
n1/1 n1-1   fake free     -       -     -    -      - -       not measured yet

n0/0: slowed 1.23x by a neighbour, by its counters; not ours: python3 4711;
  throttled: power cap
n0/1: power, temp: not supported here
"""
TOP = """\
RANK GPU  KIND UTIL  SM  MEMORY POWER TEMP    PCIE NVLINK NOTE
   0 n0/0 fake  98% 62% 61/141G  652W  71C 2.4GB/s      - slowed 1.23x by a nei…
   1 n0/1 fake  98% 62% 61/141G     -    - 2.4GB/s      - power, temp: not supp…

NODE LOAD CPU STOLEN  MEMORY  NET IN NET OUT LOOPBACK RESENT NOTE
n0      2 55%     0% 16/256G 1.2GB/s 9.0MB/s  500MB/s    3/s 2 readings were la…

n0/0: slowed 1.23x by a neighbour, by its counters; not ours: python3 4711;
  throttled: power cap
n0/1: power, temp: not supported here
n0: 2 readings were late
"""


@pytest.fixture
def cluster(living):
    return living


@pytest.fixture
def job(cluster):
    fields = {"name": "gpt", "entrypoint": "m:f", "workdir": "/w", "gpus": {"min": 1, "max": 2}}
    id = Client.from_config().call("POST", "jobs", body={"job": fields}).json()["id"]
    cluster.advance(4)
    cluster._step(NodeHeard(node="n0", session="s0", beat=1, telemetry=SAMPLE))
    return id


@pytest.fixture
def jct(capsys):
    def call(*arguments: object) -> str:
        capsys.readouterr()
        assert run([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return call


def test_gpus_fits_80_columns_and_tells_below_what_had_no_room(jct, job):
    assert jct("gpus", "-w", 80) == GPUS
    assert max(map(len, GPUS.splitlines())) == 80


def test_top_shows_a_jobs_devices_by_rank_and_its_nodes(jct, job):
    head, _, rest = jct("top", job, "-w", 80).partition("\n\n")
    assert head.startswith(f"job {job} gpt, RUNNING, step ")
    assert rest == TOP


def test_bub02_top_tells_of_devices_that_swing_and_whether_with_the_steps(jct, job, cluster):
    assert cluster.state.progress[job].step_time_s is not None
    cluster.state.progress[job].step_time_s, cluster.state.progress[job].bubble_share = 4.0, 0.31
    swings = {"swing_percent": 62.0, "swing_period_s": 4.1}
    for beat, (period_s, said) in enumerate(((4.1, "with every step: bubbles"), (9.0, "every 9.0 s")), 2):
        values = VALUES | swings | {"swing_period_s": period_s}
        devices = (DeviceSample(id="n0-1", age_s=0.5, values=values),)
        cluster._step(NodeHeard(node="n0", session="s0", beat=beat, telemetry=Telemetry(number=9, devices=devices)))
        out = jct("top", job, "-w", 80)
        assert f"n0/1: util swings by 62 points {said}" in out
        assert "4 s each, 31% bubbles" in out.splitlines()[0]
        assert max(map(len, out.splitlines()[1:])) <= 80


def test_top_of_a_job_without_devices_says_so(jct, job):
    fields = {"name": "big", "entrypoint": "m:f", "workdir": "/w", "gpus": 4}
    waiting = Client.from_config().call("POST", "jobs", body={"job": fields}).json()["id"]
    assert jct("top", waiting, "-w", 80).startswith(f"job {waiting} big, PENDING: it holds no device now")


def test_for_scripts_everything_is_there(jct, job):
    document = json.loads(jct("top", job, "--json"))
    assert [device["rank"] for device in document["devices"]] == [0, 1]
    assert document["devices"][1]["measured"]["missing"] == NONE
    assert [node["id"] for node in document["nodes"]] == ["n0"]
    assert len(json.loads(jct("gpus", "--json"))["devices"]) == 4


def test_old_measurements_say_how_old_they_are(jct, job, cluster):
    cluster.advance(40)
    assert "measured 40s ago" in jct("gpus", "-w", 0)


def test_show_tells_what_a_neighbour_costs_and_since_when(jct, job, cluster):
    (line,) = (line for line in jct("show", job).splitlines() if line.startswith("Neighbours"))
    assert line.split(maxsplit=1)[1].startswith("slowed 1.23x on n0/0, since 20")
    (found,) = json.loads(jct("show", job, "--json"))["job"]["neighbours"]
    assert (found["node"], found["index"], found["device"]) == ("n0", 0, "n0-0")
    assert found["costs_percent"] == pytest.approx(23.0)
    gone = msgspec.structs.replace(SAMPLE, devices=SAMPLE.devices[1:])
    cluster._step(NodeHeard(node="n0", session="s0", beat=2, telemetry=gone))
    assert "Neighbours" not in jct("show", job)
