"""What nodes measure: in memory only, over REST, and as Prometheus' gauges."""

import json
import re
import urllib.request

import pytest
from small_server import serving

from scheduler.core.events import NodeHeard
from scheduler.protocol.telemetry import DeviceSample, InterfaceSample, Process, Telemetry
from scheduler.store.tokens import Role

PROCESSES = (
    Process(pid=1, whose="job", job=77, name="ours", memory_bytes=5),
    Process(pid=2, whose="other", name="secret"),
)


def sample(busy: float | None = 90.0, processes: tuple[Process, ...] | None = PROCESSES) -> Telemetry:
    missing = {"power_w": "not supported here"} | ({"busy_percent": "too late"} if busy is None else {})
    values = {"busy_percent": busy, "power_w": None, "memory_used_bytes": 100.0}
    devices = (
        DeviceSample(id="n0-0", kind="fake", age_s=0.5, values=values, missing=missing, processes=processes),
        DeviceSample(id="n0-1", kind="fake", age_s=0.5, values=values | {"busy_percent": 10.0}, missing=missing),
    )
    lo = InterfaceSample(name="lo", kind="loopback", up=True, values={"rx_bytes_per_s": 1.0})
    return Telemetry(number=3, devices=devices, interfaces=(lo,), host={"load_1m": 2.5}, late=4)


@pytest.fixture
def cluster(tmp_path):
    with serving(tmp_path) as (living, url):
        living.url = url
        yield living


def beat(cluster, number: int, telemetry: Telemetry, session: str = "s0") -> None:
    cluster._step(NodeHeard(node="n0", session=session, beat=number, telemetry=telemetry))


def get(cluster, path: str, **token: object) -> str:
    request = urllib.request.Request(cluster.url + path)
    request.add_header("Authorization", f"Bearer {cluster.token(**token)}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def device(cluster, id: str = "n0-0", **token: object) -> dict:
    return next(one for one in json.loads(get(cluster, "/v1/devices", **token))["devices"] if one["id"] == id)


def test_the_newest_sample_is_shown_with_its_age_and_its_reasons(cluster):
    assert device(cluster)["measured"] is None
    beat(cluster, 1, sample())
    cluster.advance(3)
    measured = device(cluster)["measured"]
    assert measured["values"] == {"busy_percent": 90.0, "power_w": None, "memory_used_bytes": 100.0}
    assert measured["missing"] == {"power_w": "not supported here"}
    assert measured["age_s"] == 3.5
    assert device(cluster, "n1-0")["measured"] is None
    nodes = json.loads(get(cluster, "/v1/nodes"))["nodes"]
    assert [node["measured"] is None for node in nodes] == [False, True]
    assert (nodes[0]["measured"]["values"], nodes[0]["measured"]["late"]) == ({"load_1m": 2.5}, 4)
    assert nodes[0]["measured"]["interfaces"][0]["kind"] == "loopback"


def test_nodes_and_devices_are_in_order_however_they_were_learned_of(cluster):
    for table in (cluster.state.devices, cluster.state.nodes):
        rows = dict(reversed(table.items()))
        table.clear()
        table.update(rows)
    shown = json.loads(get(cluster, "/v1/devices"))["devices"]
    assert [(one["node"], one["index"]) for one in shown] == sorted((one["node"], one["index"]) for one in shown)
    nodes = [one["id"] for one in json.loads(get(cluster, "/v1/nodes"))["nodes"]]
    assert nodes == sorted(nodes)


def test_late_beats_and_those_of_an_older_session_change_nothing(cluster):
    beat(cluster, 2, sample(50.0))
    beat(cluster, 1, sample(20.0))
    beat(cluster, 9, sample(30.0), session="an older one")
    assert device(cluster)["measured"]["values"]["busy_percent"] == 50.0
    beat(cluster, 3, sample(None))
    assert device(cluster)["measured"]["missing"]["busy_percent"] == "too late"


def test_processes_of_other_teams_are_counted_and_not_named(cluster):
    beat(cluster, 1, sample())
    whole = device(cluster)["measured"]["processes"]
    assert [(one["job"], one["name"]) for one in whole] == [(77, "ours"), (None, "secret")]
    hidden = device(cluster, user="eva", team="vision", role=Role.USER)["measured"]["processes"]
    assert [(one["whose"], one["job"], one["name"]) for one in hidden] == [("job", None, ""), ("other", None, "")]


def test_samples_are_never_in_the_database(cluster):
    beat(cluster, 1, sample())
    assert cluster.repository.load().sensed == {}


def test_gauges_are_by_node_and_kind_and_nulls_do_not_count(cluster):
    beat(cluster, 1, sample())
    text = cluster.metrics().decode()
    place = '{kind="fake",node="n0"}'
    assert f"jctd_device_busy_percent{place} 50.0" in text
    assert f"jctd_device_memory_used_bytes{place} 200.0" in text
    assert f"jctd_device_foreign_processes{place} 1.0" in text
    assert 'jctd_node_late_readings{node="n0"} 4.0' in text
    assert "jctd_device_power_watts{" not in text
    assert not re.search(r'jctd_device\w*\{[^}]*(job|device|id)="', text)


def test_slots_of_one_machine_have_its_memory_once(cluster):
    values = {"busy_percent": 50.0, "memory_used_bytes": 100.0, "memory_total_bytes": 400.0}
    devices = tuple(DeviceSample(id=f"n0-{at}", kind="cpu", age_s=0.5, values=values) for at in range(2))
    beat(cluster, 1, Telemetry(number=3, devices=devices))
    text = cluster.metrics().decode()
    assert 'jctd_device_memory_used_bytes{kind="cpu",node="n0"} 100.0' in text
    assert 'jctd_device_memory_total_bytes{kind="cpu",node="n0"} 400.0' in text


def test_a_node_says_nothing_of_devices_of_other_nodes(cluster):
    beat(cluster, 1, sample())
    cluster._step(NodeHeard(node="n1", session="s0", beat=1, telemetry=sample(busy=1.0)))
    assert device(cluster)["measured"]["values"]["busy_percent"] == 90.0


def test_what_cannot_be_true_reaches_neither_json_nor_gauges(cluster):
    """The rest of such a beat stands."""
    beat(cluster, 1, sample(busy=float("nan")))
    measured = device(cluster)["measured"]
    assert measured["values"] == {"busy_percent": None, "power_w": None, "memory_used_bytes": 100.0}
    assert measured["missing"]["busy_percent"] == "impossible value"
    gauges = [line for line in cluster.metrics().decode().splitlines() if line.startswith("jctd_device_")]
    assert gauges
    assert not [line for line in gauges if line.endswith("NaN")]
